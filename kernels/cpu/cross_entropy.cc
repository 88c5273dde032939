#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/cpu/cross_entropy_problem.h"

namespace rekindle::kernels::cpu {
namespace {

constexpr std::int64_t kMaxChunks = 256;  // partial losses, summed in order

// Rows of one unit: the first, how many, and where the first's scores begin.
struct Unit {
  std::int64_t row;
  std::int64_t width;
  std::int64_t offset;
};

template <typename T>
Unit unit_at(const Problem<T>& problem, std::int64_t index) {
  const auto& shape = problem.shape;
  const std::int64_t outer = index / problem.tiles();
  const std::int64_t first = index % problem.tiles() * problem.tile_width();
  return {outer * shape.inner + first, std::min(problem.tile_width(), shape.inner - first),
          outer * shape.classes * shape.inner + first};
}

template <typename T>
double row_loss(const Problem<T>& problem, const RowSums<T>& sums, std::int64_t row, const T* x) {
  const std::int64_t t = problem.target[row];
  if (t == problem.options.ignore_index) return 0;
  const double shift = sums.shift;
  const double log_sum = std::log(sums.sum);
  const std::int64_t stride = problem.shape.inner;
  const double nll = (shift - widen(x[t * stride]) + log_sum) * weight_at(problem.weight, t);
  const double smoothing = problem.options.label_smoothing;
  if (smoothing == 0) return nll;
  const double smooth =
      row_deficit(x, problem.weight, problem.shape.classes, stride, shift) + problem.weight_sum * log_sum;
  return (1 - smoothing) * nll + smoothing / static_cast<double>(problem.shape.classes) * smooth;
}

// Writes the logsumexp, and the losses when each is wanted, of one unit; returns the losses' sum.
template <typename T>
double forward_unit(const Problem<T>& problem, std::int64_t index, T* losses, Accumulator<T>* logsumexp) {
  const Unit unit = unit_at(problem, index);
  const T* x = problem.scores + unit.offset;
  std::array<RowSums<T>, kTile> sums;
  if (problem.shape.inner == 1) {
    sums[0] = row_sums(x, problem.shape.classes);
  } else {
    tile_sums(x, problem.shape.classes, problem.shape.inner, unit.width, sums.data());
  }
  double total = 0;
  for (std::int64_t j = 0; j < unit.width; ++j) {
    const std::int64_t row = unit.row + j;
    logsumexp[row] = static_cast<Accumulator<T>>(sums[j].shift + std::log(sums[j].sum));
    const double loss = row_loss(problem, sums[j], row, x + j);
    if (losses != nullptr) losses[row] = static_cast<T>(loss);
    total += loss;
  }
  return total;
}

// Chunks depend on the shape only, and their sums are added in order: threads change nothing.
template <typename T>
void forward(const Problem<T>& problem, T* loss, Accumulator<T>* logsumexp) {
  const std::int64_t units = problem.units();
  const std::int64_t chunks = std::min(kMaxChunks, units);
  const bool each = problem.options.reduction == Reduction::kNone;
  T* losses = each ? loss : nullptr;
  std::array<double, kMaxChunks> partial;
  const std::int64_t grain = chunks == 0 ? 1 : std::max<std::int64_t>(1, problem.grain() * chunks / units);
  at::parallel_for(0, chunks, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t chunk = begin; chunk < end; ++chunk) {
      double sum = 0;
      for (std::int64_t u = units * chunk / chunks; u < units * (chunk + 1) / chunks; ++u) {
        sum += forward_unit(problem, u, losses, logsumexp);
      }
      partial[chunk] = sum;
    }
  });
  if (each) return;
  double total = 0;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) total += partial[chunk];
  // Without weights eager's part of the targets is 0 / 0, whatever the part of all classes is.
  const bool has_none = problem.target_total == 0 && problem.options.label_smoothing > 0;
  const double mean = has_none ? std::numeric_limits<double>::quiet_NaN() : total / problem.target_total;
  *loss = static_cast<T>(problem.options.reduction == Reduction::kMean ? mean : total);
}

template <typename T>
void backward_unit(const Problem<T>& problem, std::int64_t index, const T* dloss,
                   const Accumulator<T>* logsumexp, T* dscores) {
  const Unit unit = unit_at(problem, index);
  const std::int64_t classes = problem.shape.classes;
  const T* x = problem.scores + unit.offset;
  T* dx = dscores + unit.offset;
  std::array<RowGradient<T>, kTile> rows;
  for (std::int64_t j = 0; j < unit.width; ++j)
    rows[j] = row_gradient(problem, unit.row + j, dloss, logsumexp);
  if (problem.shape.inner > 1) {
    tile_backward(x, problem.weight, classes, problem.shape.inner, unit.width, rows.data(), dx);
  } else if (rows[0].target < 0 && std::isfinite(rows[0].logsumexp)) {
    std::fill_n(dx, classes, T(0));
  } else {
    row_backward(x, problem.weight, classes, rows[0], dx);
  }
}

}  // namespace

void cross_entropy_forward(const at::Tensor& scores, const at::Tensor& target, const at::Tensor& weight,
                           const CrossEntropyOptions& options, at::Tensor& loss, at::Tensor& logsumexp) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, scores.scalar_type(), "cross_entropy_forward",
                                  [&] {
                                    const Problem<scalar_t> problem(scores, target, weight, options);
                                    forward(problem, loss.mutable_data_ptr<scalar_t>(),
                                            logsumexp.mutable_data_ptr<Accumulator<scalar_t>>());
                                  });
}

void cross_entropy_backward(const at::Tensor& dloss, const at::Tensor& scores, const at::Tensor& target,
                            const at::Tensor& logsumexp, const at::Tensor& weight,
                            const CrossEntropyOptions& options, at::Tensor& dscores) {
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, scores.scalar_type(), "cross_entropy_backward", [&] {
        const Problem<scalar_t> problem(scores, target, weight, options);
        const auto* dloss_data = dloss.const_data_ptr<scalar_t>();
        const auto* logsumexp_data = logsumexp.const_data_ptr<Accumulator<scalar_t>>();
        auto* dscores_data = dscores.mutable_data_ptr<scalar_t>();
        at::parallel_for(0, problem.units(), problem.grain(), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t u = begin; u < end; ++u) {
            backward_unit(problem, u, dloss_data, logsumexp_data, dscores_data);
          }
        });
      });
}

}  // namespace rekindle::kernels::cpu
