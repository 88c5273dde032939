// The forward of a batch norm. Roundings are those of eager: results differ by the order of float64 sums
// only.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/backends.h"
#include "kernels/cpu/grain.h"
#include "kernels/cpu/vector.h"

namespace rekindle::kernels::cpu {
namespace {

constexpr std::int64_t kLongRow = 256;  // whose sum is worth several parts

// x seen as [outer, channels, inner]. Where inner is 1, a row has an element of each channel, and loops run
// over channels; else, they run along a row of one channel.
struct Planes {
  std::int64_t outer, channels, inner;
  explicit Planes(const at::Tensor& x)
      : outer(x.size(0)), channels(x.size(1)), inner(x.numel() == 0 ? 0 : x.numel() / outer / channels) {}
  std::int64_t count() const { return outer * inner; }
};

template <typename T>
const T* data_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<T>() : nullptr;
}

// From x to y: y = x * factor + shift.
template <typename T>
struct Line {
  const T *mean, *factor, *offset;
  explicit Line(const BatchNormLine& line)
      : mean(line.mean.const_data_ptr<T>()),
        factor(line.factor.const_data_ptr<T>()),
        offset(line.offset.const_data_ptr<T>()) {}
  REKINDLE_INLINE T shift(std::int64_t c) const { return offset[c] - mean[c] * factor[c]; }
};

// The sum of term(i) for i < n; of a long row, in four parts that do not wait for each other.
template <typename Term>
REKINDLE_INLINE double sum_of(std::int64_t n, const Term& term) {
  const std::int64_t part = n < kLongRow ? 0 : n / 4;
  double first = 0, second = 0, third = 0, fourth = 0, rest = 0;
#pragma omp simd reduction(+ : first, second, third, fourth)
  for (std::int64_t i = 0; i < part; ++i) {
    first += static_cast<double>(term(i));
    second += static_cast<double>(term(i + part));
    third += static_cast<double>(term(i + 2 * part));
    fourth += static_cast<double>(term(i + 3 * part));
  }
#pragma omp simd reduction(+ : rest)
  for (std::int64_t i = 4 * part; i < n; ++i) rest += static_cast<double>(term(i));
  return ((first + second) + (third + fourth)) + rest;
}

template <typename T>
REKINDLE_CPU_CLONES double sum_channel(const T* x, const Planes& planes) {
  double sum = 0;
  for (std::int64_t n = 0; n < planes.outer; ++n) {
    const T* row = x + n * planes.channels * planes.inner;
    sum += sum_of(planes.inner, [&](std::int64_t i) { return row[i]; });
  }
  return sum;
}

template <typename T>
REKINDLE_CPU_CLONES double squares_of_channel(const T* x, const Planes& planes, T mean) {
  double squares = 0;
  for (std::int64_t n = 0; n < planes.outer; ++n) {
    const T* row = x + n * planes.channels * planes.inner;
    squares += sum_of(planes.inner, [&](std::int64_t i) { return (row[i] - mean) * (row[i] - mean); });
  }
  return squares;
}

// What follows from the sums of a channel. Compiled once, without fused multiply-add, as eager's is.
template <typename T>
class Finish {
 public:
  Finish(const BatchNormChannels& channels, const BatchNormOptions& options, const BatchNormStatistics& to)
      : old_mean_(channels.running_mean.const_data_ptr<T>()),
        old_var_(channels.running_var.const_data_ptr<T>()),
        weight_(data_or_null<T>(channels.weight)),
        bias_(data_or_null<T>(channels.bias)),
        options_(options),
        mean_(to.mean.mutable_data_ptr<T>()),
        inv_std_(to.inv_std.mutable_data_ptr<T>()),
        new_mean_(to.running_mean.mutable_data_ptr<T>()),
        new_var_(to.running_var.mutable_data_ptr<T>()),
        factor_(to.factor.mutable_data_ptr<T>()),
        offset_(to.offset.mutable_data_ptr<T>()) {}

  T* mean() const { return mean_; }

  void operator()(std::int64_t c, double sum_of_squares, std::int64_t count) const {
    const T squares = static_cast<T>(sum_of_squares), momentum = static_cast<T>(options_.momentum);
    const double variance = squares / static_cast<T>(count), unbiased = squares / static_cast<T>(count - 1);
    const bool is_zero = variance == 0 && options_.epsilon == 0;
    inv_std_[c] = is_zero ? T(0) : static_cast<T>(1 / std::sqrt(variance + options_.epsilon));
    new_mean_[c] = momentum * mean_[c] + (1 - momentum) * old_mean_[c];
    const T kept = (1 - momentum) * old_var_[c];
    new_var_[c] = static_cast<T>(static_cast<double>(momentum) * unbiased + static_cast<double>(kept));
    factor_[c] = weight_ == nullptr ? inv_std_[c] : inv_std_[c] * weight_[c];
    offset_[c] = bias_ == nullptr ? T(0) : bias_[c];
  }

 private:
  const T *old_mean_, *old_var_, *weight_, *bias_;
  BatchNormOptions options_;
  T *mean_, *inv_std_, *new_mean_, *new_var_, *factor_, *offset_;
};

template <typename T>
void statistics_of(const T* x, const Planes& planes, const Finish<T>& finish) {
  const std::int64_t count = planes.count();
  T* mean = finish.mean();
  at::parallel_for(0, planes.channels, grain_of(count), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; ++c) {
      const T* from = x + c * planes.inner;
      mean[c] = static_cast<T>(sum_channel(from, planes) / static_cast<double>(count));
      finish(c, squares_of_channel(from, planes, mean[c]), count);
    }
  });
}

template <bool kRelu, typename T>
REKINDLE_INLINE T activated(T y) {
  return kRelu && y < 0 ? T(0) : y;  // nan and -0 stay, as in eager
}

// Where an element has a row of its own channel's elements around it: the rows from begin on, of all samples.
template <bool kRelu, typename T>
REKINDLE_CPU_CLONES void normalize_rows(const T* x, const Planes& planes, const Line<T>& line,
                                        const std::array<std::int64_t, 2>& range, T* y) {
  for (std::int64_t row = range[0]; row < range[1]; ++row) {
    const T factor = line.factor[row % planes.channels], shift = line.shift(row % planes.channels);
    const std::int64_t from = row * planes.inner;
#pragma omp simd
    for (std::int64_t i = from; i < from + planes.inner; ++i) y[i] = activated<kRelu>(x[i] * factor + shift);
  }
}

// Where a row has an element of each channel.
template <bool kRelu, typename T>
REKINDLE_CPU_CLONES void normalize_together(const T* x, std::int64_t channels, const Line<T>& line, T* y) {
#pragma omp simd
  for (std::int64_t c = 0; c < channels; ++c) y[c] = activated<kRelu>(x[c] * line.factor[c] + line.shift(c));
}

template <bool kRelu, typename T>
void normalize(const T* x, const Planes& planes, const Line<T>& line, T* y) {
  const std::int64_t channels = planes.channels;
  if (planes.inner == 1) {
    at::parallel_for(0, planes.outer, grain_of(channels), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n)
        normalize_together<kRelu>(x + n * channels, channels, line, y + n * channels);
    });
    return;
  }
  at::parallel_for(0, planes.outer * channels, grain_of(planes.inner),
                   [&](std::int64_t begin, std::int64_t end) {
                     normalize_rows<kRelu>(x, planes, line, {begin, end}, y);
                   });
}

}  // namespace

void batch_statistics(const at::Tensor& x, const BatchNormChannels& channels, const BatchNormOptions& options,
                      const BatchNormStatistics& statistics) {
  if (x.numel() == 0) return;
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "batch_statistics", [&] {
    statistics_of(x.const_data_ptr<scalar_t>(), Planes(x), Finish<scalar_t>(channels, options, statistics));
  });
}

void batch_normalize(const at::Tensor& x, const BatchNormLine& line, bool relu, at::Tensor& y) {
  if (x.numel() == 0) return;
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "batch_normalize", [&] {
    const Line<scalar_t> values(line);
    const auto* from = x.const_data_ptr<scalar_t>();
    auto* to = y.mutable_data_ptr<scalar_t>();
    relu ? normalize<true>(from, Planes(x), values, to) : normalize<false>(from, Planes(x), values, to);
  });
}

}  // namespace rekindle::kernels::cpu
