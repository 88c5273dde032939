// The states of PyTorch's default generators.
#pragma once

#include <ATen/core/TensorBody.h>

#include <cstdint>
#include <vector>

namespace rekindle::device {

// One state of uint8 on the CPU for each generator: the CPU's, then those of the accelerator's devices in
// order of their indices. Undefined for a device that nothing has used yet, whose generator nothing has drawn
// from.
using RandomStates = std::vector<at::Tensor>;

// The states as they are now, as torch.get_rng_state() and torch.cuda.get_rng_state_all() return them.
RandomStates random_states();

// Sets the generators whose state is defined, and leaves the others.
void set_random_states(const RandomStates& states);

// Seeds the generators of the CPU and of the devices in use, as torch.manual_seed() does.
void seed_random_states(std::uint64_t seed);

}  // namespace rekindle::device
