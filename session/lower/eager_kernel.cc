#include "session/lower/eager_kernel.h"

#include <ATen/native/Normalization.h>
#include <ATen/ops/cudnn_batch_norm.h>
#include <ATen/ops/cudnn_batch_norm_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/native_batch_norm_backward.h>

namespace rekindle::session {
namespace {

// PyTorch's own choice. In channels-last, cuDNN wants memory of the forward's in the backward, for which
// there is no place in a graph.
bool is_cudnn(const at::Tensor& x, const at::Tensor& scale, double epsilon) {
  if (!x.is_cuda() || !scale.defined() || x.suggest_memory_format() != at::MemoryFormat::Contiguous)
    return false;
  return at::native::_select_batch_norm_backend(x, scale, /*bias=*/scale, {}, {}, /*training=*/true,
                                                epsilon) == at::native::BatchNormBackend::Cudnn;
}

at::Tensor tensor_or_none(const c10::IValue& value) {
  return value.isNone() ? at::Tensor() : value.toTensor();
}

// (input, weight?, bias?, running_mean, running_var, training, momentum, eps): the result, mean and inverse
// deviation of the batch, and the new statistics.
std::vector<at::Tensor> cudnn_batch_norm(const std::vector<c10::IValue>& arguments) {
  const at::Tensor &x = arguments.at(0).toTensor(), scale = tensor_or_none(arguments.at(1)),
                   bias = tensor_or_none(arguments.at(2));
  const double momentum = arguments.at(6).toDouble(), epsilon = arguments.at(7).toDouble();
  if (!arguments.at(5).toBool() || !bias.defined() || x.numel() == 0 || !is_cudnn(x, scale, epsilon))
    return {};
  at::Tensor running_mean = arguments.at(3).toTensor().clone(at::MemoryFormat::Contiguous),
             running_var = arguments.at(4).toTensor().clone(at::MemoryFormat::Contiguous);
  auto [y, mean, inv_std, reserve] =
      at::cudnn_batch_norm(x.contiguous(), scale.contiguous(), bias.contiguous(), running_mean, running_var,
                           /*training=*/true, momentum, epsilon);
  TORCH_CHECK(reserve.numel() == 0, "cuDNN keeps ", reserve.numel(), " bytes of a batch norm of ", x.sizes(),
              " for its gradient, which a graph has no place for");
  return {y, mean, inv_std, running_mean, running_var};
}

}  // namespace

EagerKernel eager_kernel(std::string_view op_type) {
  return op_type == "aten._native_batch_norm_legit_functional.default" ? cudnn_batch_norm : nullptr;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm_gradient(const at::Tensor& dy,
                                                                   const BatchNormTape& tape,
                                                                   const std::array<bool, 3>& wanted) {
  if (is_cudnn(tape.x, tape.scale.value_or(at::Tensor()), tape.epsilon)) {
    const at::Tensor no_reserve = at::empty({0}, tape.x.options().dtype(at::kByte));
    return at::cudnn_batch_norm_backward(tape.x.contiguous(), dy.contiguous(), tape.scale->contiguous(), {},
                                         {}, tape.mean, tape.inv_std, tape.epsilon, no_reserve);
  }
  return at::native_batch_norm_backward(dy, tape.x, tape.scale, {}, {}, tape.mean, tape.inv_std,
                                        /*train=*/true, tape.epsilon, wanted);
}

}  // namespace rekindle::session
