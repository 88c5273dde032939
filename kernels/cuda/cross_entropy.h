// Launches of cross entropy's kernels, for cross_entropy.cc, which knows tensors. cross_entropy.cu, which has
// the kernels, is read once for each architecture: it includes of torch only what is short.
//
// T is float, double, c10::BFloat16 or c10::Half. Pointers are to the device's memory.
#pragma once

#include <c10/macros/Macros.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cross_entropy.h"

namespace rekindle::kernels::cuda {

template <typename T>
using Accumulator = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Problem is one call of either direction; kernels get it by value.
template <typename T>
struct Problem {
  const T* scores;
  const std::int64_t* target;
  const T* weight;
  std::int64_t classes;
  std::int64_t inner;
  std::int64_t rows;
  std::int64_t ignore_index;
  double smoothing;
  Reduction reduction;

  C10_DEVICE std::int64_t offset(std::int64_t row) const {
    return row / inner * classes * inner + row % inner;
  }
  C10_DEVICE Accumulator<T> weight_at(std::int64_t c) const {
    return weight == nullptr ? Accumulator<T>(1) : static_cast<Accumulator<T>>(weight[c]);
  }
  C10_DEVICE Accumulator<T> score(std::int64_t offset, std::int64_t c) const {
    return static_cast<Accumulator<T>>(scores[offset + c * inner]);
  }
};

// Writes the losses and logsumexp on the current stream. `workspace` has room for 2 + problem.rows numbers.
template <typename T>
void launch_forward(const Problem<T>& problem, double* workspace, T* loss, Accumulator<T>* logsumexp);

// Writes the gradient of the scores, whose memory `dscores` may be, on the current stream. `totals` has room
// for 2 numbers.
template <typename T>
void launch_backward(const Problem<T>& problem, double* totals, const T* dloss,
                     const Accumulator<T>* logsumexp, T* dscores);

}  // namespace rekindle::kernels::cuda
