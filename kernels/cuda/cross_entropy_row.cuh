// Cross entropy of one row on the device: what the kernels over rows and over columns share.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/cross_entropy.h"

namespace rekindle::kernels::cuda {

// A row's largest score so far, and the sum of exp(score - shift).
template <typename A>
struct RowSums {
  A shift;
  A sum;
};

__device__ inline float exponential(float x) { return expf(x); }
__device__ inline double exponential(double x) { return exp(x); }

template <typename A>
__device__ A lowest() {
  return static_cast<A>(-INFINITY);
}

// Nothing of a row is "-inf, 0"; nans and infinities end as a nan sum, as eager's.
template <typename A>
__device__ RowSums<A> combine(const RowSums<A>& a, const RowSums<A>& b) {
  const A shift = a.shift > b.shift ? a.shift : b.shift;
  const A left = a.shift == lowest<A>() ? a.sum : a.sum * exponential(a.shift - shift);
  const A right = b.shift == lowest<A>() ? b.sum : b.sum * exponential(b.shift - shift);
  return {shift, left + right};
}

template <typename A>
__device__ RowSums<A> add_score(const RowSums<A>& sums, A x) {
  if (x > sums.shift) {
    const A kept = sums.shift == lowest<A>() ? sums.sum : sums.sum * exponential(sums.shift - x);
    return {x, kept + exponential(x - x)};
  }
  const A base = sums.shift == lowest<A>() ? A(0) : sums.shift;
  return {sums.shift, sums.sum + exponential(x - base)};
}

// A row's loss out of its sums. `deficit`: the weighted sum of (shift - score), used by label smoothing.
template <typename T>
__device__ double row_loss(const Problem<T>& problem, std::int64_t row, const RowSums<Accumulator<T>>& sums,
                           double deficit, double weights) {
  const std::int64_t t = problem.target[row];
  if (t == problem.ignore_index) return 0;
  const double log_sum = log(static_cast<double>(sums.sum));
  const double score = problem.score(problem.offset(row), t);
  const double nll = (static_cast<double>(sums.shift) - score + log_sum) * problem.weight_at(t);
  if (problem.smoothing == 0) return nll;
  const double smooth = deficit + weights * log_sum;
  return (1 - problem.smoothing) * nll + problem.smoothing / static_cast<double>(problem.classes) * smooth;
}

template <typename T>
__device__ void store_row(const Problem<T>& problem, std::int64_t row, const RowSums<Accumulator<T>>& sums,
                          double loss, double* row_losses, T* losses, Accumulator<T>* logsumexp) {
  logsumexp[row] = static_cast<Accumulator<T>>(sums.shift + log(static_cast<double>(sums.sum)));
  if (problem.reduction == Reduction::kNone) {
    losses[row] = static_cast<T>(loss);
  } else {
    row_losses[row] = loss;
  }
}

// What a row's gradient is made of: softmax * total - onehot - smooth * weight.
template <typename T>
struct RowGradient {
  Accumulator<T> logsumexp;
  Accumulator<T> total;
  Accumulator<T> onehot;
  Accumulator<T> smooth;
  std::int64_t target;  // -1: an ignored row
};

template <typename T>
__device__ RowGradient<T> row_gradient(const Problem<T>& problem, std::int64_t row, const T* dloss,
                                       const Accumulator<T>* logsumexp, const double* totals) {
  using A = Accumulator<T>;
  const std::int64_t t = problem.target[row];
  if (t == problem.ignore_index) return {logsumexp[row], A(0), A(0), A(0), -1};
  double scale = static_cast<A>(dloss[problem.reduction == Reduction::kNone ? row : 0]);
  if (problem.reduction == Reduction::kMean) scale /= totals[0];
  const double onehot = (1 - problem.smoothing) * problem.weight_at(t) * scale;
  const double smooth =
      problem.smoothing == 0 ? 0 : problem.smoothing / static_cast<double>(problem.classes) * scale;
  const double total = problem.smoothing == 0 ? onehot : onehot + smooth * totals[1];
  return {logsumexp[row], static_cast<A>(total), static_cast<A>(onehot), static_cast<A>(smooth), t};
}

template <typename T>
__device__ T score_gradient(const Problem<T>& problem, const RowGradient<T>& row, Accumulator<T> scale,
                            std::int64_t offset, std::int64_t c) {
  const auto softmax = exponential(problem.score(offset, c) - row.logsumexp) * scale;
  const auto smooth = row.smooth == 0 ? row.smooth : row.smooth * problem.weight_at(c);
  return static_cast<T>(softmax - smooth - (c == row.target ? row.onehot : Accumulator<T>(0)));
}

}  // namespace rekindle::kernels::cuda
