// evaluate(): one node whose inputs are all constants, computed now. Passes receive it as a callback, so that
// they fold constants without knowing ATen.
#pragma once

#include <vector>

#include "src/base/result.h"
#include "src/graph/graph.h"

namespace rekindle::session {

// One constant per output. kUnsupported when the op has no lowering or its inputs are not all
// constants, kInvalidArgument when the op refuses them. Results larger than `max_bytes` are
// refused too, with kUnsupported.
Result<std::vector<graph::ConstantPtr>> evaluate(const graph::Node& node, std::size_t max_bytes = 1 << 20);

}  // namespace rekindle::session
