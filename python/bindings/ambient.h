// What of the process, beside Python objects, decides what a forward means.
#pragma once

#include <cstdint>
#include <vector>

namespace rekindle::python {

// Process-wide switches that change what a forward means: grad mode and inference mode, autocast per device,
// default dtype, determinism, matmul, convolution and attention settings, mode stacks, saved-tensor hooks,
// tracing, anomaly mode, forward-mode differentiation.
std::vector<std::int64_t> ambient_state();

}  // namespace rekindle::python
