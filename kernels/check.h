// Argument checks shared by the kernels. They throw c10::Error, which names the argument and both sides.
#pragma once

#include <ATen/core/Tensor.h>

namespace rekindle::kernels {

// The dtype in which values of `tensor` are summed.
inline at::ScalarType accumulator_type(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

inline void check_floating(const char* name, const at::Tensor& tensor) {
  TORCH_CHECK(at::isFloatingType(tensor.scalar_type()), name, " must be floating point, got ",
              tensor.scalar_type());
}

// Contiguous, of this dtype and shape, and on `like`'s device.
inline void check_tensor(const char* name, const at::Tensor& tensor, at::ScalarType dtype,
                         at::IntArrayRef sizes, const at::Tensor& like) {
  TORCH_CHECK(tensor.defined(), name, " is missing");
  TORCH_CHECK(tensor.scalar_type() == dtype, name, " must be ", dtype, ", got ", tensor.scalar_type());
  TORCH_CHECK(tensor.sizes() == sizes, name, " must have shape ", sizes, ", got ", tensor.sizes());
  TORCH_CHECK(tensor.device() == like.device(), name, " must be on ", like.device(), ", got ",
              tensor.device());
  TORCH_CHECK(tensor.is_contiguous(), name, " must be contiguous, got strides ", tensor.strides());
}

}  // namespace rekindle::kernels
