// Problem holds what the loops over rows of scores know of their call; row_gradient() says what a row's
// gradient is made of.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

#include "kernels/backends.h"
#include "kernels/cpu/cross_entropy_rows.h"
#include "kernels/cpu/grain.h"

namespace rekindle::kernels::cpu {

// Problem is one call of either direction. A unit is one row, or a tile of
// neighbouring rows when classes are not innermost.
template <typename T>
struct Problem {
  CrossEntropyShape shape;
  CrossEntropyOptions options;
  const T* scores;
  const std::int64_t* target;
  const T* weight;
  double weight_sum = 0;    // over the classes
  double target_total = 0;  // the weights of the targets that count

  Problem(const at::Tensor& scores_tensor, const at::Tensor& target_tensor, const at::Tensor& weight_tensor,
          const CrossEntropyOptions& chosen)
      : shape(cross_entropy_shape(scores_tensor)),
        options(chosen),
        scores(scores_tensor.const_data_ptr<T>()),
        target(target_tensor.const_data_ptr<std::int64_t>()),
        weight(weight_tensor.defined() ? weight_tensor.const_data_ptr<T>() : nullptr) {
    for (std::int64_t c = 0; c < shape.classes; ++c) weight_sum += weight_at(weight, c);
    for (std::int64_t row = 0; row < shape.rows(); ++row) {
      const std::int64_t t = target[row];
      if (t == options.ignore_index) continue;
      TORCH_CHECK_INDEX(t >= 0 && t < shape.classes, "Target ", t, " is out of bounds.");
      target_total += weight_at(weight, t);
    }
  }

  std::int64_t tile_width() const { return std::min(shape.inner, kTile); }
  std::int64_t tiles() const {
    return (shape.inner + tile_width() - 1) / std::max<std::int64_t>(tile_width(), 1);
  }
  std::int64_t units() const { return shape.inner == 0 ? 0 : shape.outer * tiles(); }
  std::int64_t grain() const { return grain_of(shape.classes * tile_width()); }
};

template <typename T>
RowGradient<T> row_gradient(const Problem<T>& problem, std::int64_t row, const T* dloss,
                            const Accumulator<T>* logsumexp) {
  using A = Accumulator<T>;
  RowGradient<T> result;
  result.logsumexp = logsumexp[row];
  const std::int64_t t = problem.target[row];
  if (t == problem.options.ignore_index) return result;
  const bool each = problem.options.reduction == Reduction::kNone;
  double scale = widen(dloss[each ? row : 0]);
  if (problem.options.reduction == Reduction::kMean) scale /= problem.target_total;
  const double smoothing = problem.options.label_smoothing;
  const double onehot = (1 - smoothing) * weight_at(problem.weight, t) * scale;
  const double smooth = smoothing == 0 ? 0 : smoothing / static_cast<double>(problem.shape.classes) * scale;
  result.target = t;
  result.onehot = static_cast<A>(onehot);
  result.smooth = static_cast<A>(smooth);
  result.total = static_cast<A>(smoothing == 0 ? onehot : onehot + smooth * problem.weight_sum);
  return result;
}

}  // namespace rekindle::kernels::cpu
