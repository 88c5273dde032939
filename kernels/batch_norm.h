// Batch normalization in training and its gradient, written into given memory.
//
// x is [N, C, ...]. mean and all else of a channel have C elements. All tensors are contiguous, of x's dtype,
// float32 or float64, and on one device. A channel has at least one element, unless there is no channel:
// eager raises otherwise.
//
// Sums are in float64, in an order that depends on the shapes alone, not on the number of threads, and on the
// CPU nothing is allocated, with two exceptions, which are left to PyTorch: statistics where a channel has
// one element in a sample, and gradients where it has two in all. Errors are c10::Error. No autograd graph is
// recorded.
#pragma once

#include <cstdint>

namespace at {
class Tensor;
}

namespace rekindle::kernels {

struct BatchNormOptions {
  double momentum = 0.1;  // the share of the batch in new running statistics
  double epsilon = 1e-5;  // added to the variance
};

// What a batch norm has of its channels. An undefined weight or bias means ones, or zeros.
struct BatchNormChannels {
  const at::Tensor& running_mean;
  const at::Tensor& running_var;
  const at::Tensor& weight;
  const at::Tensor& bias;
};

// What batch_statistics writes. factor is inv_std * weight; offset is the bias, or zeros: what a later write
// to the parameters does not change.
struct BatchNormStatistics {
  at::Tensor& mean;
  at::Tensor& inv_std;
  at::Tensor& running_mean;  // the new ones; may be the same memory as the old ones
  at::Tensor& running_var;
  at::Tensor& factor;
  at::Tensor& offset;
};

void batch_statistics(const at::Tensor& x, const BatchNormChannels& channels, const BatchNormOptions& options,
                      const BatchNormStatistics& statistics);

// From x to y, as batch_statistics has found it.
struct BatchNormLine {
  const at::Tensor& mean;
  const at::Tensor& factor;
  const at::Tensor& offset;
};

// y = (x - mean) * factor + offset, and its maximum with 0 with `relu`. y may be the same memory as x.
void batch_normalize(const at::Tensor& x, const BatchNormLine& line, bool relu, at::Tensor& y);

// What the forward leaves. With a factor, y went through a relu: dy then counts where y is not 0 or less, for
// which y is computed again, to the same bits.
struct BatchNormSaved {
  const at::Tensor& mean;
  const at::Tensor& inv_std;
  const at::Tensor& weight;  // may be undefined
  const at::Tensor& factor;  // undefined, or as offset is
  const at::Tensor& offset;
};

// What the backward pass writes; what is undefined is not computed.
struct BatchNormGradients {
  at::Tensor& dx;  // may be the same memory as dy or x
  at::Tensor& dweight;
  at::Tensor& dbias;
};

void batch_norm_backward(const at::Tensor& dy, const at::Tensor& x, const BatchNormSaved& saved,
                         const BatchNormGradients& gradients);

// The same by PyTorch's kernels, on the CPU and CUDA (batch_normalize: CUDA only): their rounding is eager's.
void batch_statistics_by_torch(const at::Tensor& x, const BatchNormChannels& channels,
                               const BatchNormOptions& options, const BatchNormStatistics& statistics);
void batch_normalize_by_torch(const at::Tensor& x, const BatchNormLine& line, bool relu, at::Tensor& y);
void batch_norm_backward_by_torch(const at::Tensor& dy, const at::Tensor& x, const BatchNormSaved& saved,
                                  const BatchNormGradients& gradients);

// The same in plain ATen, for any device.
void batch_statistics_reference(const at::Tensor& x, const BatchNormChannels& channels,
                                const BatchNormOptions& options, const BatchNormStatistics& statistics);
void batch_normalize_reference(const at::Tensor& x, const BatchNormLine& line, bool relu, at::Tensor& y);
void batch_norm_backward_reference(const at::Tensor& dy, const at::Tensor& x, const BatchNormSaved& saved,
                                   const BatchNormGradients& gradients);

}  // namespace rekindle::kernels
