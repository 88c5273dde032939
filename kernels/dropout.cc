#include "kernels/dropout.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/native_dropout.h>
#include <ATen/ops/native_dropout_backward.h>
#include <ATen/ops/ones.h>

#include "kernels/backends.h"
#include "kernels/check.h"

namespace rekindle::kernels {
namespace {

void check_probability(double p) {
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
}

void check_mask(const at::Tensor& mask) {
  TORCH_CHECK(mask.defined(), "dropout: mask is missing");
  check_tensor("dropout: mask", mask, at::kBool, mask.sizes(), mask);
}

}  // namespace

void dropout_sample_mask(at::Tensor& mask, double p, c10::ScalarType dtype) {
  check_probability(p);
  check_mask(mask);
  const at::NoGradGuard no_grad;
  // Eager takes no draws when there is nothing to decide.
  if (p == 0 || p == 1) {
    mask.fill_(p == 0);
  } else if (!mask.is_cpu() || !cpu::dropout_sample_mask(mask, p)) {
    dropout_sample_mask_reference(mask, p, dtype);
  }
}

void dropout_from_mask(const at::Tensor& x, const at::Tensor& mask, double p, at::Tensor& y) {
  check_probability(p);
  check_floating("dropout: x", x);
  check_tensor("dropout: x", x, x.scalar_type(), x.sizes(), x);
  check_tensor("dropout: mask", mask, at::kBool, x.sizes(), x);
  check_tensor("dropout: y", y, x.scalar_type(), x.sizes(), x);
  if (x.is_cpu()) return cpu::dropout_from_mask(x, mask, p, y);
  dropout_from_mask_reference(x, mask, p, y);
}

void dropout_forward(const at::Tensor& x, double p, at::Tensor& y, at::Tensor& mask) {
  dropout_sample_mask(mask, p, x.scalar_type());
  dropout_from_mask(x, mask, p, y);
}

void dropout_sample_mask_reference(at::Tensor& mask, double p, c10::ScalarType dtype) {
  const at::NoGradGuard no_grad;
  if (p == 0 || p == 1) {
    mask.fill_(p == 0);
  } else if (mask.is_cpu()) {
    // ATen draws from the CPU generator in the same way whatever the dtype of what it fills.
    mask.bernoulli_(1 - p);
  } else {
    // The fused kernel gives out its numbers by vector width, so the dtype counts.
    mask.copy_(std::get<1>(at::native_dropout(at::ones(mask.sizes(), mask.options().dtype(dtype)), p, true)));
  }
}

void dropout_from_mask_reference(const at::Tensor& x, const at::Tensor& mask, double p, at::Tensor& y) {
  const at::NoGradGuard no_grad;
  if (x.is_cuda() && p < 1) {
    y.copy_(at::native_dropout_backward(x, mask, p == 0 ? 1.0 : 1.0 / (1.0 - p)));
    return;
  }
  auto noise = mask.to(x.scalar_type());
  if (p < 1) noise.div_(1 - p);
  at::mul_out(y, x, noise);
}

}  // namespace rekindle::kernels
