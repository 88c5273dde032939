// The state of a device's default generator.
#pragma once

#include <ATen/core/TensorBody.h>

namespace rekindle::device {

// As torch.get_rng_state() has it: uint8, on the CPU.
at::Tensor random_state(at::Device device);

}  // namespace rekindle::device
