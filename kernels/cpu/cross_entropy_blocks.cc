#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <cmath>
#include <vector>

#include "kernels/cpu/cross_entropy_problem.h"
#include "kernels/cpu/grain.h"

namespace rekindle::kernels::cpu {
namespace {

// As row_backward() sums them.
template <typename T>
REKINDLE_CPU_CLONES double sum_of_exponentials(const T* x, std::int64_t classes, T logsumexp) {
  double sum = 0;
  for (std::int64_t begin = 0; begin < classes; begin += kScoresBlock) {
    const std::int64_t end = std::min(begin + kScoresBlock, classes);
    T block_sum = 0;
#pragma omp simd reduction(+ : block_sum)
    for (std::int64_t i = begin; i < end; ++i) block_sum += exp(x[i] - logsumexp);
    sum += block_sum;
  }
  return sum;
}

// The gradient of neighbouring classes of a row. `scale`: what an exponential is multiplied by.
template <typename T>
REKINDLE_CPU_CLONES void some_classes(const T* x, const T* weight, std::int64_t classes, T logsumexp, T scale,
                                      T smooth, T* dx) {
  for_weights(weight, smooth, [&](auto part) {
#pragma omp simd
    for (std::int64_t i = 0; i < classes; ++i) dx[i] = exp(x[i] - logsumexp) * scale - part(i);
  });
}

// The rows' gradients, their `total` divided by the sum of exponentials that row_backward() divides by.
template <typename T>
std::vector<RowGradient<T>> scaled_rows(const Problem<T>& problem, const T* dloss, const T* logsumexp) {
  std::vector<RowGradient<T>> rows(static_cast<std::size_t>(problem.shape.rows()));
  const std::int64_t classes = problem.shape.classes;
  at::parallel_for(0, problem.shape.rows(), problem.grain(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      RowGradient<T>& row = rows[static_cast<std::size_t>(r)];
      row = row_gradient(problem, r, dloss, logsumexp);
      if (row.target < 0 && std::isfinite(row.logsumexp)) continue;
      row.total = static_cast<T>(row.total /
                                 sum_of_exponentials(problem.scores + r * classes, classes, row.logsumexp));
    }
  });
  return rows;
}

template <typename T>
void write_block(const Problem<T>& problem, const std::vector<RowGradient<T>>& rows, std::int64_t first,
                 std::int64_t width, T* block) {
  at::parallel_for(0, problem.shape.rows(), grain_of(width), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const RowGradient<T>& row = rows[static_cast<std::size_t>(r)];
      T* dx = block + r * width;
      if (row.target < 0 && std::isfinite(row.logsumexp)) {
        std::fill_n(dx, width, T(0));
        continue;
      }
      some_classes(problem.scores + r * problem.shape.classes + first,
                   problem.weight == nullptr ? nullptr : problem.weight + first, width, row.logsumexp,
                   row.total, row.smooth, dx);
      if (row.target >= first && row.target < first + width) dx[row.target - first] -= row.onehot;
    }
  });
}

}  // namespace

void cross_entropy_backward_blocks(const at::Tensor& dloss, const at::Tensor& scores,
                                   const at::Tensor& target, const at::Tensor& logsumexp,
                                   const at::Tensor& weight, const CrossEntropyOptions& options,
                                   at::Tensor& memory, const UseOfBlock& use) {
  AT_DISPATCH_FLOATING_TYPES(scores.scalar_type(), "cross_entropy_backward_blocks", [&] {
    const Problem<scalar_t> problem(scores, target, weight, options);
    const auto rows =
        scaled_rows(problem, dloss.const_data_ptr<scalar_t>(), logsumexp.const_data_ptr<scalar_t>());
    const std::int64_t classes = problem.shape.classes, most = memory.numel() / problem.shape.rows();
    for (std::int64_t first = 0; first < classes; first += most) {
      const std::int64_t width = std::min(most, classes - first);
      write_block(problem, rows, first, width, memory.mutable_data_ptr<scalar_t>());
      use(first, memory.narrow(0, 0, problem.shape.rows() * width).view({problem.shape.rows(), width}));
    }
  });
}

}  // namespace rekindle::kernels::cpu
