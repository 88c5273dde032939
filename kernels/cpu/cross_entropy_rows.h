// The loops of cross entropy over one row of scores, or over a tile of neighbouring rows.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/cpu/vector.h"

namespace rekindle::kernels::cpu {

inline constexpr std::int64_t kTile = 64;          // rows done side by side when classes are not innermost
inline constexpr std::int64_t kScoresBlock = 256;  // summed in the accumulator's type, the blocks in double

// A row's largest score, and the sum of exp(score - shift).
template <typename T>
struct RowSums {
  Accumulator<T> shift;
  double sum;
};

template <typename T>
REKINDLE_INLINE T finite_shift(T shift) {
  return shift == -std::numeric_limits<T>::infinity() ? T(0) : shift;
}

// One look at memory: each block's maximum, then its sum out of the cache.
template <typename T>
static REKINDLE_CPU_CLONES RowSums<T> row_sums(const T* x, std::int64_t classes) {
  using A = Accumulator<T>;
  A shift = -std::numeric_limits<A>::infinity();
  double sum = 0;
  for (std::int64_t begin = 0; begin < classes; begin += kScoresBlock) {
    const std::int64_t end = std::min(begin + kScoresBlock, classes);
    A largest = shift;
#pragma omp simd reduction(max : largest)
    for (std::int64_t i = begin; i < end; ++i) largest = widen(x[i]) > largest ? widen(x[i]) : largest;
    if (largest > shift) {
      if (sum != 0) sum *= std::exp(static_cast<double>(shift) - static_cast<double>(largest));
      shift = largest;
    }
    const A base = finite_shift(shift);
    A block_sum = 0;
#pragma omp simd reduction(+ : block_sum)
    for (std::int64_t i = begin; i < end; ++i) block_sum += exp(widen(x[i]) - base);
    sum += block_sum;
  }
  return {shift, sum};
}

// The same for `width` <= kTile neighbouring rows whose classes are `stride` apart.
template <typename T>
static REKINDLE_CPU_CLONES void tile_sums(const T* x, std::int64_t classes, std::int64_t stride,
                                          std::int64_t width, RowSums<T>* result) {
  using A = Accumulator<T>;
  A shift[kTile];
  A base[kTile];
  A sum[kTile];
  std::fill_n(shift, width, -std::numeric_limits<A>::infinity());
  std::fill_n(sum, width, A(0));
  for (std::int64_t c = 0; c < classes; ++c) {
    const T* row = x + c * stride;
    for (std::int64_t j = 0; j < width; ++j) shift[j] = widen(row[j]) > shift[j] ? widen(row[j]) : shift[j];
  }
  for (std::int64_t j = 0; j < width; ++j) base[j] = finite_shift(shift[j]);
  for (std::int64_t c = 0; c < classes; ++c) {
    const T* row = x + c * stride;
    for (std::int64_t j = 0; j < width; ++j) sum[j] += exp(widen(row[j]) - base[j]);
  }
  for (std::int64_t j = 0; j < width; ++j) result[j] = {shift[j], sum[j]};
}

// The weighted sum of (shift - score) over a row: label smoothing's loss but for the logarithm of the sum.
template <typename T>
static REKINDLE_CPU_CLONES double row_deficit(const T* x, const T* weight, std::int64_t classes,
                                              std::int64_t stride, double shift) {
  double deficit = 0;
  if (weight == nullptr) {
#pragma omp simd reduction(+ : deficit)
    for (std::int64_t i = 0; i < classes; ++i) deficit += shift - static_cast<double>(widen(x[i * stride]));
  } else {
#pragma omp simd reduction(+ : deficit)
    for (std::int64_t i = 0; i < classes; ++i) {
      deficit += static_cast<double>(widen(weight[i])) * (shift - static_cast<double>(widen(x[i * stride])));
    }
  }
  return deficit;
}

// What a row's gradient is made of: softmax * total - onehot - smooth * weight.
template <typename T>
struct RowGradient {
  Accumulator<T> logsumexp = 0;
  Accumulator<T> total = 0;
  Accumulator<T> onehot = 0;  // at the target
  Accumulator<T> smooth = 0;  // at every class
  std::int64_t target = -1;   // -1: an ignored row
};

template <typename T>
REKINDLE_INLINE Accumulator<T> weight_at(const T* weight, std::int64_t c) {
  return weight == nullptr ? Accumulator<T>(1) : widen(weight[c]);
}

// Calls a loop with the function of the class that gives label smoothing's
// part: one loop each, without a branch.
template <typename T, typename Loop>
REKINDLE_INLINE void for_weights(const T* weight, Accumulator<T> smooth, const Loop& loop) {
  using A = Accumulator<T>;
  if (smooth == 0) {
    loop([](std::int64_t) { return A(0); });
  } else if (weight == nullptr) {
    loop([smooth](std::int64_t) { return smooth; });
  } else {
    loop([smooth, weight](std::int64_t c) { return smooth * widen(weight[c]); });
  }
}

// logsumexp was rounded when it was stored, which is a common factor of the row's exponentials: dividing by
// their sum takes it out again. dx may be x.
template <typename T>
static REKINDLE_CPU_CLONES void row_backward(const T* x, const T* weight, std::int64_t classes,
                                             const RowGradient<T>& row, T* dx) {
  double sum = 0;
  for (std::int64_t begin = 0; begin < classes; begin += kScoresBlock) {
    const std::int64_t end = std::min(begin + kScoresBlock, classes);
    T block_sum = 0;
#pragma omp simd reduction(+ : block_sum)
    for (std::int64_t i = begin; i < end; ++i) {
      const T e = exp(x[i] - row.logsumexp);
      dx[i] = e;
      block_sum += e;
    }
    sum += block_sum;
  }
  const T scale = static_cast<T>(row.total / sum);
  for_weights(weight, row.smooth, [&](auto smooth) {
#pragma omp simd
    for (std::int64_t i = 0; i < classes; ++i) dx[i] = dx[i] * scale - smooth(i);
  });
  if (row.target >= 0) dx[row.target] -= row.onehot;
}

// Rounding to 16 bits hides that of logsumexp, so one look is enough.
template <typename T>
requires kIsReduced<T>
static REKINDLE_CPU_CLONES void row_backward(const T* x, const T* weight, std::int64_t classes,
                                             const RowGradient<T>& row, T* dx) {
  const float target_score = row.target < 0 ? 0.0f : widen(x[row.target]);
  for_weights(weight, row.smooth, [&](auto smooth) {
#pragma omp simd
    for (std::int64_t i = 0; i < classes; ++i) {
      dx[i] = narrow<T>(exp(widen(x[i]) - row.logsumexp) * row.total - smooth(i));
    }
  });
  if (row.target < 0) return;
  const float softmax = exp(target_score - row.logsumexp);
  dx[row.target] = narrow<T>(softmax * row.total - row.smooth * weight_at(weight, row.target) - row.onehot);
}

// The same for neighbouring rows. The sum needs a look of its own: 16-bit exponentials could not wait in dx.
template <typename T>
static REKINDLE_CPU_CLONES void tile_backward(const T* x, const T* weight, std::int64_t classes,
                                              std::int64_t stride, std::int64_t width,
                                              const RowGradient<T>* rows, T* dx) {
  using A = Accumulator<T>;
  A logsumexp[kTile];
  A smooth[kTile];
  A scale[kTile];
  A target_score[kTile];
  for (std::int64_t j = 0; j < width; ++j) {
    logsumexp[j] = rows[j].logsumexp;
    smooth[j] = rows[j].smooth;
    scale[j] = 0;
    target_score[j] = rows[j].target < 0 ? A(0) : widen(x[rows[j].target * stride + j]);
  }
  for (std::int64_t c = 0; c < classes; ++c) {
    for (std::int64_t j = 0; j < width; ++j) scale[j] += exp(widen(x[c * stride + j]) - logsumexp[j]);
  }
  for (std::int64_t j = 0; j < width; ++j) scale[j] = rows[j].total / scale[j];
  for (std::int64_t c = 0; c < classes; ++c) {
    const A weight_c = weight_at(weight, c);
#pragma omp simd
    for (std::int64_t j = 0; j < width; ++j) {
      const std::int64_t i = c * stride + j;
      dx[i] = narrow<T>(exp(widen(x[i]) - logsumexp[j]) * scale[j] - smooth[j] * weight_c);
    }
  }
  for (std::int64_t j = 0; j < width; ++j) {
    const std::int64_t t = rows[j].target;
    if (t < 0) continue;
    const A softmax = exp(target_score[j] - logsumexp[j]);
    dx[t * stride + j] = narrow<T>(softmax * scale[j] - smooth[j] * weight_at(weight, t) - rows[j].onehot);
  }
}

}  // namespace rekindle::kernels::cpu
