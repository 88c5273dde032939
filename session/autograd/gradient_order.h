// In which order PyTorch's engine hands gradients to those who wait for them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>
#include <vector>

namespace rekindle::session {

// Positions in `inputs` in the order in which a backward of all `outputs` on one thread would reach them;
// those that it does not reach are missing. Walks the autograd graph of `outputs` and runs none of it:
// dependencies and ties are resolved as in torch/csrc/autograd/engine.cpp. What a node does inside (a
// backward of its own, as of a reentrant checkpoint) is not seen.
std::vector<std::size_t> gradient_order(std::span<const at::Tensor> outputs,
                                        std::span<const at::Tensor> inputs);

}  // namespace rekindle::session
