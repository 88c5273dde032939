#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>

#include <algorithm>

#include "kernels/backends.h"
#include "kernels/cpu/batch_norm_planes.h"
#include "kernels/cpu/vector.h"

namespace rekindle::kernels::cpu {
namespace {

// The numbers of one channel.
template <typename T>
struct Channel {
  T mean, inv_std, weight, factor, shift;
  T mean_of_dy = 0, share = 0;  // share: how much of x - mean is taken from dy

  template <bool kRelu>
  REKINDLE_INLINE T counted(T dy, T x) const {
    return kRelu && x * factor + shift <= 0 ? T(0) : dy;  // nan counts, as in eager
  }
  template <bool kRelu>
  REKINDLE_INLINE T dx(T dy, T x) const {
    return (counted<kRelu>(dy, x) - mean_of_dy - (x - mean) * share) * inv_std * weight;
  }
};

// Of dy, and of its product with x - mean.
struct Sums {
  double dy = 0, product = 0;

  template <bool kRelu, typename T>
  REKINDLE_INLINE void add(T dys, T x, const Channel<T>& channel) {
    const T counted = channel.template counted<kRelu>(dys, x);
    dy += static_cast<double>(counted);
    product += static_cast<double>((x - channel.mean) * counted);
  }
};

// Two walks through a channel's rows: one for the sums, one for dx.
template <bool kRelu, typename T>
REKINDLE_INLINE Sums sums_of_row(const T* dy, const T* x, std::int64_t n, const Channel<T>& channel) {
  const std::int64_t part = n < kLongRow ? 0 : n / 2;
  double first = 0, second = 0, rest = 0, first_product = 0, second_product = 0, rest_product = 0;
#pragma omp simd reduction(+ : first, second, first_product, second_product)
  for (std::int64_t i = 0; i < part; ++i) {
    const T one = channel.template counted<kRelu>(dy[i], x[i]);
    const T other = channel.template counted<kRelu>(dy[i + part], x[i + part]);
    first += static_cast<double>(one);
    second += static_cast<double>(other);
    first_product += static_cast<double>((x[i] - channel.mean) * one);
    second_product += static_cast<double>((x[i + part] - channel.mean) * other);
  }
#pragma omp simd reduction(+ : rest, rest_product)
  for (std::int64_t i = 2 * part; i < n; ++i) {
    const T counted = channel.template counted<kRelu>(dy[i], x[i]);
    rest += static_cast<double>(counted);
    rest_product += static_cast<double>((x[i] - channel.mean) * counted);
  }
  return {first + second + rest, first_product + second_product + rest_product};
}

template <bool kRelu, typename T>
REKINDLE_CPU_CLONES Sums sums_of_channel(const T* dy, const T* x, const Planes& planes,
                                         const Channel<T>& channel) {
  Sums sums;
  for (std::int64_t n = 0; n < planes.outer; ++n) {
    const std::int64_t from = n * planes.channels * planes.inner;
    const Sums of_row = sums_of_row<kRelu>(dy + from, x + from, planes.inner, channel);
    sums.dy += of_row.dy;
    sums.product += of_row.product;
  }
  return sums;
}

template <bool kRelu, typename T>
REKINDLE_CPU_CLONES void write_channel(const T* dy, const T* x, const Planes& planes,
                                       const Channel<T>& channel, T* dx) {
  for (std::int64_t n = 0; n < planes.outer; ++n) {
    const std::int64_t row = n * planes.channels * planes.inner;
#pragma omp simd
    for (std::int64_t i = 0; i < planes.inner; ++i)
      dx[row + i] = channel.template dx<kRelu>(dy[row + i], x[row + i]);
  }
}

// Up to kChannelsTogether channels, where inner is 1.
template <typename T>
struct Channels {
  std::int64_t count;
  T mean[kChannelsTogether], inv_std[kChannelsTogether], weight[kChannelsTogether], factor[kChannelsTogether],
      shift[kChannelsTogether], mean_of_dy[kChannelsTogether], share[kChannelsTogether];

  REKINDLE_INLINE Channel<T> at(std::int64_t c) const {
    return {mean[c], inv_std[c], weight[c], factor[c], shift[c], mean_of_dy[c], share[c]};
  }
  void set(std::int64_t c, const Channel<T>& channel) {
    mean[c] = channel.mean;
    inv_std[c] = channel.inv_std;
    weight[c] = channel.weight;
    factor[c] = channel.factor;
    shift[c] = channel.shift;
    mean_of_dy[c] = channel.mean_of_dy;
    share[c] = channel.share;
  }
};

template <bool kRelu, typename T>
REKINDLE_CPU_CLONES void sums_together(const T* dy, const T* x, const Planes& planes,
                                       const Channels<T>& channels, Sums* sums) {
  double totals[kChannelsTogether] = {}, products[kChannelsTogether] = {};
  for (std::int64_t n = 0; n < planes.outer; ++n) {
    const std::int64_t row = n * planes.channels;
#pragma omp simd
    for (std::int64_t c = 0; c < channels.count; ++c) {
      Sums element{};
      element.template add<kRelu>(dy[row + c], x[row + c], channels.at(c));
      totals[c] += element.dy;
      products[c] += element.product;
    }
  }
  for (std::int64_t c = 0; c < channels.count; ++c) sums[c] = {totals[c], products[c]};
}

template <bool kRelu, typename T>
REKINDLE_CPU_CLONES void write_together(const T* dy, const T* x, const Planes& planes,
                                        const Channels<T>& channels, T* dx) {
  for (std::int64_t n = 0; n < planes.outer; ++n) {
    const std::int64_t row = n * planes.channels;
#pragma omp simd
    for (std::int64_t c = 0; c < channels.count; ++c)
      dx[row + c] = channels.at(c).template dx<kRelu>(dy[row + c], x[row + c]);
  }
}

// The shift of y, with the forward's rounding.
template <typename T>
REKINDLE_CPU_CLONES T shift_of(const Line<T>& line, std::int64_t c) {
  return line.shift(c);
}

template <bool kRelu, typename T>
class Backward {
 public:
  Backward(const at::Tensor& dy, const at::Tensor& x, const BatchNormSaved& saved,
           const BatchNormGradients& gradients)
      : planes_(x),
        dy_(dy.const_data_ptr<T>()),
        x_(x.const_data_ptr<T>()),
        line_(saved.mean, saved.factor, saved.offset),
        inv_std_(saved.inv_std.const_data_ptr<T>()),
        weight_(data_or_null<T>(saved.weight)),
        dx_(mutable_data_or_null<T>(gradients.dx)),
        dweight_(mutable_data_or_null<T>(gradients.dweight)),
        dbias_(mutable_data_or_null<T>(gradients.dbias)) {}

  void run() const {
    for_channels(planes_, [&](std::int64_t begin, std::int64_t end) {
      planes_.inner == 1 ? run_together(begin, end) : run_channel(begin);
    });
  }

 private:
  Channel<T> channel(std::int64_t c) const {
    const T weight = weight_ == nullptr ? T(1) : weight_[c];
    if constexpr (!kRelu) return {line_.mean[c], inv_std_[c], weight, 0, 0};
    return {line_.mean[c], inv_std_[c], weight, line_.factor[c], shift_of(line_, c)};
  }

  void finish(Channel<T>& channel, std::int64_t c, const Sums& sums) const {
    const std::int64_t count = planes_.count();
    channel.mean_of_dy = static_cast<T>(sums.dy / static_cast<double>(count));
    channel.share = static_cast<T>(sums.product) * channel.inv_std * channel.inv_std / static_cast<T>(count);
    if (dweight_ != nullptr)
      dweight_[c] = static_cast<T>(sums.product * static_cast<double>(channel.inv_std));
    if (dbias_ != nullptr) dbias_[c] = static_cast<T>(sums.dy);
  }

  void run_channel(std::int64_t c) const {
    const std::int64_t from = c * planes_.inner;
    Channel<T> numbers = channel(c);
    finish(numbers, c, sums_of_channel<kRelu>(dy_ + from, x_ + from, planes_, numbers));
    if (dx_ != nullptr) write_channel<kRelu>(dy_ + from, x_ + from, planes_, numbers, dx_ + from);
  }

  void run_together(std::int64_t begin, std::int64_t end) const {
    Channels<T> numbers;
    numbers.count = end - begin;
    for (std::int64_t c = begin; c < end; ++c) numbers.set(c - begin, channel(c));
    Sums sums[kChannelsTogether];
    sums_together<kRelu>(dy_ + begin, x_ + begin, planes_, numbers, sums);
    for (std::int64_t c = begin; c < end; ++c) {
      Channel<T> one = numbers.at(c - begin);
      finish(one, c, sums[c - begin]);
      numbers.set(c - begin, one);
    }
    if (dx_ != nullptr) write_together<kRelu>(dy_ + begin, x_ + begin, planes_, numbers, dx_ + begin);
  }

  Planes planes_;
  const T *dy_, *x_;
  Line<T> line_;
  const T *inv_std_, *weight_;
  T *dx_, *dweight_, *dbias_;
};

}  // namespace

void batch_norm_backward(const at::Tensor& dy, const at::Tensor& x, const BatchNormSaved& saved,
                         const BatchNormGradients& gradients) {
  if (x.numel() == 0) return;
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "batch_norm_backward", [&] {
    if (saved.factor.defined()) {
      Backward<true, scalar_t>(dy, x, saved, gradients).run();
    } else {
      Backward<false, scalar_t>(dy, x, saved, gradients).run();
    }
  });
}

}  // namespace rekindle::kernels::cpu
