// What the forward and the backward of a batch norm share: x seen as [outer, channels, inner].
//
// Where inner is 1, a row has an element of each channel, and loops run over channels; else, they run along a
// row of one channel.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>

#include "kernels/cpu/vector.h"

namespace rekindle::kernels::cpu {

inline constexpr std::int64_t kBatchNormGrain = 1 << 14;  // fewer elements are not worth another thread
inline constexpr std::int64_t kChannelsTogether =
    32;                                        // channels whose sums are made in one walk, where inner is 1
inline constexpr std::int64_t kLongRow = 256;  // whose sum is worth several parts

struct Planes {
  std::int64_t outer, channels, inner;
  explicit Planes(const at::Tensor& x)
      : outer(x.size(0)), channels(x.size(1)), inner(x.numel() == 0 ? 0 : x.numel() / outer / channels) {}
  std::int64_t count() const { return outer * inner; }
};

inline std::int64_t batch_norm_grain(std::int64_t elements) {
  return std::max<std::int64_t>(1, kBatchNormGrain / std::max<std::int64_t>(1, elements));
}

// Calls body(begin, end) for channels, or for groups of kChannelsTogether where inner is 1.
template <typename Body>
void for_channels(const Planes& planes, const Body& body) {
  const std::int64_t size = planes.inner == 1 ? kChannelsTogether : 1;
  const std::int64_t groups = (planes.channels + size - 1) / size;
  at::parallel_for(0, groups, batch_norm_grain(planes.count() * size),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t group = begin; group < end; ++group)
                       body(group * size, std::min((group + 1) * size, planes.channels));
                   });
}

template <typename T>
const T* data_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<T>() : nullptr;
}

template <typename T>
T* mutable_data_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr<T>() : nullptr;
}

// y before the relu, everywhere: the backward pass computes it again, to the same bits.
template <typename T>
struct Line {
  const T *mean, *factor, *offset;
  Line(const at::Tensor& means, const at::Tensor& factors, const at::Tensor& offsets)
      : mean(means.const_data_ptr<T>()), factor(data_or_null<T>(factors)), offset(data_or_null<T>(offsets)) {}
  REKINDLE_INLINE T shift(std::int64_t c) const { return offset[c] - mean[c] * factor[c]; }
};

}  // namespace rekindle::kernels::cpu
