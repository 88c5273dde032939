#include "kernels/embedding_gradient.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/embedding_dense_backward.h>

#include <vector>

#include "kernels/backends.h"
#include "kernels/check.h"

namespace rekindle::kernels {
namespace {

void check_arguments(const at::Tensor& dy, const at::Tensor& indices, const at::Tensor& dweight) {
  check_floating("embedding_gradient: dy", dy);
  check_tensor("embedding_gradient: dy", dy, dy.scalar_type(), dy.sizes(), dy);
  TORCH_CHECK(indices.scalar_type() == at::kLong || indices.scalar_type() == at::kInt,
              "embedding_gradient: indices must be int64 or int32, got ", indices.scalar_type());
  TORCH_CHECK(dweight.dim() == 2, "embedding_gradient: dweight must have 2 dimensions, got shape ",
              dweight.sizes());
  auto dy_sizes = indices.sizes().vec();
  dy_sizes.push_back(dweight.size(1));
  check_tensor("embedding_gradient: dy", dy, dy.scalar_type(), dy_sizes, dy);
  check_tensor("embedding_gradient: indices", indices, indices.scalar_type(), indices.sizes(), dy);
  check_tensor("embedding_gradient: dweight", dweight, dy.scalar_type(), dweight.sizes(), dy);
}

}  // namespace

void embedding_gradient(const at::Tensor& dy, const at::Tensor& indices,
                        const EmbeddingGradientOptions& options, at::Tensor& dweight) {
  check_arguments(dy, indices, dweight);
  if (dy.is_cpu()) return cpu::embedding_gradient(dy, indices, options, dweight);
  embedding_gradient_reference(dy, indices, options, dweight);
}

void embedding_gradient_reference(const at::Tensor& dy, const at::Tensor& indices,
                                  const EmbeddingGradientOptions& options, at::Tensor& dweight) {
  const at::NoGradGuard no_grad;
  const auto sum = at::embedding_dense_backward(dy, indices, dweight.size(0), options.padding_idx,
                                                /*scale_grad_by_freq=*/false);
  if (options.accumulate) {
    dweight.add_(sum);
  } else {
    dweight.copy_(sum);
  }
}

}  // namespace rekindle::kernels
