// Layer normalization and its gradient, written into given memory.
//
// x is seen as [rows, columns]: the dimensions before `axis`, and those from it on. weight and bias have
// `columns` elements; an undefined tensor means ones, or zeros. mean and inv_std have `rows` elements of
// float64 for float64 x, else float32; everything else has x's dtype: float64, float32, bfloat16 or float16.
//
// All tensors are contiguous and on one device. Results depend on the shapes alone, not on the number of
// threads. CPU: nothing is allocated. Errors are c10::Error. No autograd graph is recorded.
#pragma once

#include <cstdint>

namespace at {
class Tensor;
}

namespace rekindle::kernels {

struct LayerNormOptions {
  std::int64_t axis = -1;  // the first normalized dimension
  double epsilon = 1e-5;   // added to the variance; the backward pass does not use it
};

// y = (x - mean) * inv_std * weight + bias, inv_std = 1 / sqrt(variance +
// epsilon). y may be the same memory as x.
void layer_norm_forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        const LayerNormOptions& options, at::Tensor& y, at::Tensor& mean,
                        at::Tensor& inv_std);

// How many elements of mean's dtype layer_norm_backward wants as workspace for x of this shape.
std::int64_t layer_norm_workspace(std::int64_t rows, std::int64_t columns);

// What the backward pass writes; an undefined dweight or dbias is not computed.
struct LayerNormGradients {
  at::Tensor& dx;  // may be the same memory as dy or x
  at::Tensor& dweight;
  at::Tensor& dbias;
  at::Tensor& workspace;  // layer_norm_workspace elements; undefined when neither dweight nor dbias is wanted
};

// dx = inv_std * (g - average(g) - n * average(g * n)), with n = (x - mean) * inv_std, g = dy * weight and
// averages over a row's columns; dweight is the sum of dy * n over the rows, dbias that of dy. All sums are
// in mean's dtype or float64.
//
// dy and dx have x's shape, dweight and dbias have `columns` elements; mean and inv_std are what the forward
// pass wrote for x. What is written shares no memory with another tensor, but for dx. Only the CPU uses the
// workspace.
void layer_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean,
                         const at::Tensor& inv_std, const at::Tensor& weight, const LayerNormOptions& options,
                         const LayerNormGradients& gradients);

// The same in plain ATen, for any device and dtype.
void layer_norm_forward_reference(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                  const LayerNormOptions& options, at::Tensor& y, at::Tensor& mean,
                                  at::Tensor& inv_std);
void layer_norm_backward_reference(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean,
                                   const at::Tensor& inv_std, const at::Tensor& weight,
                                   const LayerNormOptions& options, const LayerNormGradients& gradients);

}  // namespace rekindle::kernels
