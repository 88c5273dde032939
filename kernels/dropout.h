// Dropout with eager's own random numbers: the same seed drops the same elements.
//
// x, y and mask have one shape, are contiguous and on one device; x and y have one dtype: float64, float32,
// bfloat16 or float16; mask is bool. `p` is the probability of dropping, in [0, 1]. CPU: nothing is
// allocated, except by ATen where its generator draws through a vendor library. Errors are c10::Error. No
// autograd graph is recorded.
#pragma once

#include <c10/core/ScalarType.h>

namespace at {
class Tensor;
}

namespace rekindle::kernels {

// Fills `mask` (true: keep) with the draws that torch.nn.functional.dropout(x, p, training=True)
// takes from the device's default generator for a contiguous x of this dtype and shape, and leaves
// the generator as that call does.
void dropout_sample_mask(at::Tensor& mask, double p, c10::ScalarType dtype);

// y = x * mask / (1 - p), bit for bit what eager computes from that mask. y may be the same memory as x.
// The gradient is the same function of dy.
void dropout_from_mask(const at::Tensor& x, const at::Tensor& mask, double p, at::Tensor& y);

// Both steps. y may be the same memory as x.
void dropout_forward(const at::Tensor& x, double p, at::Tensor& y, at::Tensor& mask);

// The same in plain ATen, for any device.
void dropout_sample_mask_reference(at::Tensor& mask, double p, c10::ScalarType dtype);
void dropout_from_mask_reference(const at::Tensor& x, const at::Tensor& mask, double p, at::Tensor& y);

}  // namespace rekindle::kernels
