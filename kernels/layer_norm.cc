#include "kernels/layer_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "kernels/backends.h"
#include "kernels/check.h"

namespace rekindle::kernels {

std::int64_t layer_norm_workspace(std::int64_t rows, std::int64_t columns) {
  return 2 * layer_norm_chunks(rows) * columns;
}

RowsAndColumns rows_and_columns(const at::Tensor& x, std::int64_t axis) {
  const std::int64_t first = axis < 0 ? axis + x.dim() : axis;
  TORCH_CHECK(first >= 0 && first < x.dim(), "layer_norm: axis ", axis, " is not one of x of shape ",
              x.sizes());
  RowsAndColumns shape;
  for (std::int64_t d = 0; d < first; ++d) shape.rows *= x.size(d);
  for (std::int64_t d = first; d < x.dim(); ++d) shape.columns *= x.size(d);
  return shape;
}

namespace {

void check_elements(const char* name, const at::Tensor& tensor, at::ScalarType dtype, std::int64_t count,
                    const at::Tensor& like) {
  TORCH_CHECK(tensor.defined(), name, " is missing");
  check_tensor(name, tensor, dtype, tensor.sizes(), like);
  TORCH_CHECK(tensor.numel() == count, name, " must have ", count, " elements, got ", tensor.numel());
}

void check_input(const at::Tensor& x) {
  check_floating("layer_norm: x", x);
  check_tensor("layer_norm: x", x, x.scalar_type(), x.sizes(), x);
}

// Statistics in rows' shape, ready to broadcast over columns.
at::Tensor as_column(const at::Tensor& statistic) { return statistic.reshape({-1, 1}); }

}  // namespace

void layer_norm_forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        const LayerNormOptions& options, at::Tensor& y, at::Tensor& mean,
                        at::Tensor& inv_std) {
  check_input(x);
  const auto shape = rows_and_columns(x, options.axis);
  if (weight.defined()) check_elements("layer_norm: weight", weight, x.scalar_type(), shape.columns, x);
  if (bias.defined()) check_elements("layer_norm: bias", bias, x.scalar_type(), shape.columns, x);
  check_tensor("layer_norm: y", y, x.scalar_type(), x.sizes(), x);
  check_elements("layer_norm: mean", mean, accumulator_type(x), shape.rows, x);
  check_elements("layer_norm: inv_std", inv_std, accumulator_type(x), shape.rows, x);
  if (x.is_cpu()) return cpu::layer_norm_forward(x, weight, bias, options, y, mean, inv_std);
  layer_norm_forward_reference(x, weight, bias, options, y, mean, inv_std);
}

void layer_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean,
                         const at::Tensor& inv_std, const at::Tensor& weight, const LayerNormOptions& options,
                         const LayerNormGradients& gradients) {
  check_input(x);
  const auto shape = rows_and_columns(x, options.axis);
  check_tensor("layer_norm: dy", dy, x.scalar_type(), x.sizes(), x);
  check_elements("layer_norm: mean", mean, accumulator_type(x), shape.rows, x);
  check_elements("layer_norm: inv_std", inv_std, accumulator_type(x), shape.rows, x);
  if (weight.defined()) check_elements("layer_norm: weight", weight, x.scalar_type(), shape.columns, x);
  check_tensor("layer_norm: dx", gradients.dx, x.scalar_type(), x.sizes(), x);
  for (const at::Tensor* parameter : {&gradients.dweight, &gradients.dbias}) {
    if (!parameter->defined()) continue;
    check_elements("layer_norm: dweight or dbias", *parameter, x.scalar_type(), shape.columns, x);
    if (!x.is_cpu()) continue;
    check_elements("layer_norm: workspace", gradients.workspace, accumulator_type(x),
                   layer_norm_workspace(shape.rows, shape.columns), x);
  }
  if (x.is_cpu()) return cpu::layer_norm_backward(dy, x, mean, inv_std, weight, options, gradients);
  layer_norm_backward_reference(dy, x, mean, inv_std, weight, options, gradients);
}

void layer_norm_forward_reference(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                  const LayerNormOptions& options, at::Tensor& y, at::Tensor& mean,
                                  at::Tensor& inv_std) {
  const at::NoGradGuard no_grad;
  const auto shape = rows_and_columns(x, options.axis);
  const auto type = accumulator_type(x);
  const auto wide = x.to(type).view({shape.rows, shape.columns});
  const auto row_mean = wide.mean(1, /*keepdim=*/true);
  const auto centred = wide - row_mean;
  const auto row_inv_std = (centred.square().mean(1, /*keepdim=*/true) + options.epsilon).rsqrt();
  auto result = centred * row_inv_std;
  if (weight.defined()) result = result * weight.to(type).flatten();
  if (bias.defined()) result = result + bias.to(type).flatten();
  y.copy_(result.view(x.sizes()));
  mean.copy_(row_mean.view(mean.sizes()));
  inv_std.copy_(row_inv_std.view(inv_std.sizes()));
}

void layer_norm_backward_reference(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean,
                                   const at::Tensor& inv_std, const at::Tensor& weight,
                                   const LayerNormOptions& options, const LayerNormGradients& gradients) {
  const at::NoGradGuard no_grad;
  const auto shape = rows_and_columns(x, options.axis);
  const auto type = accumulator_type(x);
  const auto normalized =
      (x.to(type).view({shape.rows, shape.columns}) - as_column(mean)) * as_column(inv_std);
  const auto wide_dy = dy.to(type).view({shape.rows, shape.columns});
  const auto dnormalized = weight.defined() ? wide_dy * weight.to(type).flatten() : wide_dy;
  const auto along = (dnormalized * normalized).mean(1, /*keepdim=*/true);
  const auto dx =
      as_column(inv_std) * (dnormalized - dnormalized.mean(1, /*keepdim=*/true) - normalized * along);
  // x and dy are no longer needed: dx may be either.
  if (gradients.dweight.defined()) {
    gradients.dweight.copy_((wide_dy * normalized).sum(0).view(gradients.dweight.sizes()));
  }
  if (gradients.dbias.defined()) gradients.dbias.copy_(wide_dy.sum(0).view(gradients.dbias.sizes()));
  gradients.dx.copy_(dx.view(x.sizes()));
}

}  // namespace rekindle::kernels
