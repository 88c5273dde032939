// eager_kernel() calls what eager's dispatcher takes on a GPU in the place of an operator that an export
// makes. Internal to the session room.
//
// An example: nn.BatchNorm2d in training is cuDNN's on CUDA, in one kernel. Its export is PyTorch's
// functional operator, which has three kernels of its own, reads x twice and rounds otherwise.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <array>
#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

namespace rekindle::session {

// Returns the operator's results, none if eager takes the operator itself for these arguments, which are in
// the order of its schema.
using EagerKernel = std::vector<at::Tensor> (*)(const std::vector<c10::IValue>& arguments);

// Null if eager takes the operator whatever its arguments are. op_type: "aten.conv2d.default".
EagerKernel eager_kernel(std::string_view op_type);

// The gradients of x, scale and bias by the operator that eager takes for a batch norm in training: cuDNN's
// or PyTorch's own. mean and inv_std are the forward's; `wanted` says which of the three the caller uses.
struct BatchNormTape {
  const at::Tensor &x, &mean, &inv_std;
  std::optional<at::Tensor> scale;
  double epsilon = 1e-5;
};
std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm_gradient(const at::Tensor& dy,
                                                                   const BatchNormTape& tape,
                                                                   const std::array<bool, 3>& wanted);

}  // namespace rekindle::session
