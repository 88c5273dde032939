// The state of a device's default generator.
#pragma once

#include <ATen/core/TensorBody.h>

namespace rekindle::device {

// Returns what torch.get_rng_state() does: uint8, on the CPU.
at::Tensor random_state(at::Device device);

}  // namespace rekindle::device
