// Batch normalization in training, written into given memory. Its gradient is PyTorch's.
//
// x is [N, C, ...]. mean and all else of a channel have C elements. All tensors are contiguous unless it says
// otherwise, of x's dtype, float32 or float64, and on one device. A channel has at least one element, unless
// there is no channel: eager raises otherwise.
//
// Sums are in float64, in an order that depends on the shapes alone, not on the number of threads, and on the
// CPU nothing is allocated, with one exception, which is left to PyTorch: statistics where a channel has one
// element in a sample. Errors are c10::Error. No autograd graph is recorded.
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

// Holds a value per channel: the statistics so far and the parameters. An undefined weight stands for ones,
// an undefined bias for zeros.
struct BatchNormChannels {
  const at::Tensor& running_mean;
  const at::Tensor& running_var;
  const at::Tensor& weight;
  const at::Tensor& bias;
};

// Names the tensors that batch_statistics writes. factor is inv_std * weight, and offset a copy of the bias,
// or zeros: a later write to the parameters changes neither.
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

// The same on the CPU for an x with gaps or with dimensions in another order, by PyTorch, which then takes
// the mean off each element first: of a constant channel of 1e4, y is exactly the bias, and not up to 0.03
// from it. y may lie as it likes.
void strided_batch_statistics(const at::Tensor& x, const BatchNormChannels& channels,
                              const BatchNormOptions& options, const BatchNormStatistics& statistics);
void strided_batch_normalize(const at::Tensor& x, const BatchNormLine& line, bool relu, at::Tensor& y);

// The same by PyTorch's kernels, on the CPU and CUDA (batch_normalize: CUDA only): their rounding is eager's.
void batch_statistics_by_torch(const at::Tensor& x, const BatchNormChannels& channels,
                               const BatchNormOptions& options, const BatchNormStatistics& statistics);
void batch_normalize_by_torch(const at::Tensor& x, const BatchNormLine& line, bool relu, at::Tensor& y);

// The same in plain ATen, for any device.
void batch_statistics_reference(const at::Tensor& x, const BatchNormChannels& channels,
                                const BatchNormOptions& options, const BatchNormStatistics& statistics);
void batch_normalize_reference(const at::Tensor& x, const BatchNormLine& line, bool relu, at::Tensor& y);

}  // namespace rekindle::kernels
