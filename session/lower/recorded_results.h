// What the export saw an operator of the torch domain return. Internal to the session room.
#pragma once

#include <optional>
#include <vector>

#include "session/lower/op.h"

namespace rekindle::session {

// Meta tensors, from the node's attribute _layouts; nullopt when there is none, or when the export was for
// other inputs. Asking PyTorch's meta kernels instead loads seconds of Python code first.
std::optional<std::vector<at::Tensor>> recorded_results(const LowerContext& context);

}  // namespace rekindle::session
