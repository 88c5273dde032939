#include "kernels/cuda/cross_entropy.h"

#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>

#include "kernels/backends.h"

namespace rekindle::kernels::cuda {
namespace {

template <typename T>
Problem<T> make_problem(const at::Tensor& scores, const at::Tensor& target, const at::Tensor& weight,
                        const CrossEntropyOptions& options) {
  const auto shape = cross_entropy_shape(scores);
  return {scores.const_data_ptr<T>(),
          target.const_data_ptr<std::int64_t>(),
          weight.defined() ? weight.const_data_ptr<T>() : nullptr,
          shape.classes,
          shape.inner,
          shape.rows(),
          options.ignore_index,
          options.label_smoothing,
          options.reduction};
}

}  // namespace

void cross_entropy_forward(const at::Tensor& scores, const at::Tensor& target, const at::Tensor& weight,
                           const CrossEntropyOptions& options, at::Tensor& loss, at::Tensor& logsumexp) {
  const c10::cuda::CUDAGuard guard(scores.device());
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, scores.scalar_type(), "cross_entropy_forward", [&] {
        const auto problem = make_problem<scalar_t>(scores, target, weight, options);
        const auto workspace = at::empty({2 + problem.rows}, scores.options().dtype(at::kDouble));
        launch_forward(problem, workspace.mutable_data_ptr<double>(), loss.mutable_data_ptr<scalar_t>(),
                       logsumexp.mutable_data_ptr<Accumulator<scalar_t>>());
      });
}

void cross_entropy_backward(const at::Tensor& dloss, const at::Tensor& scores, const at::Tensor& target,
                            const at::Tensor& logsumexp, const at::Tensor& weight,
                            const CrossEntropyOptions& options, at::Tensor& dscores) {
  const c10::cuda::CUDAGuard guard(scores.device());
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, scores.scalar_type(), "cross_entropy_backward", [&] {
        const auto problem = make_problem<scalar_t>(scores, target, weight, options);
        const auto totals = at::empty({2}, scores.options().dtype(at::kDouble));
        launch_backward(problem, totals.mutable_data_ptr<double>(), dloss.const_data_ptr<scalar_t>(),
                        logsumexp.const_data_ptr<Accumulator<scalar_t>>(),
                        dscores.mutable_data_ptr<scalar_t>());
      });
}

}  // namespace rekindle::kernels::cuda
