#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>

#include "kernels/backends.h"
#include "kernels/cuda/cross_entropy_row.cuh"
#include "kernels/cuda/launch.cuh"

namespace rekindle::kernels::cuda {
namespace {

constexpr int kSumThreads = kMaxThreads;
constexpr std::int64_t kMaxBlocks = std::int64_t{1} << 30;

// Totals over the batch: one block, a fixed order. totals[0]: weights of
// targets that count; [1]: of all classes.
template <typename T>
__global__ void totals_kernel(Problem<T> problem, double* totals) {
  __shared__ double shared[kMaxWarps];
  double counted = 0;
  for (std::int64_t row = threadIdx.x; row < problem.rows; row += blockDim.x) {
    const std::int64_t t = problem.target[row];
    if (t == problem.ignore_index) continue;
    CUDA_KERNEL_ASSERT(t >= 0 && t < problem.classes && "cross_entropy: target is out of bounds");
    counted += problem.weight_at(t);
  }
  counted = block_sum(counted, shared);
  double weights = 0;
  for (std::int64_t c = threadIdx.x; c < problem.classes; c += blockDim.x) weights += problem.weight_at(c);
  weights = block_sum(weights, shared);
  if (threadIdx.x == 0) {
    totals[0] = counted;
    totals[1] = weights;
  }
}

// A block for a row: classes are next to each other.
template <typename T>
__global__ void forward_rows(Problem<T> problem, const double* totals, double* row_losses, T* losses,
                             Accumulator<T>* logsumexp) {
  using A = Accumulator<T>;
  __shared__ RowSums<A> shared_sums[kMaxWarps];
  __shared__ double shared[kMaxWarps];
  for (std::int64_t row = blockIdx.x; row < problem.rows; row += gridDim.x) {
    const std::int64_t offset = problem.offset(row);
    RowSums<A> sums{lowest<A>(), A(0)};
    for (std::int64_t c = threadIdx.x; c < problem.classes; c += blockDim.x) {
      sums = add_score(sums, problem.score(offset, c));
    }
    sums = block_reduce(
        sums, shared_sums,
        [](const RowSums<A>& v, int lanes) {
          return RowSums<A>{__shfl_down_sync(0xffffffffu, v.shift, lanes),
                            __shfl_down_sync(0xffffffffu, v.sum, lanes)};
        },
        [](const RowSums<A>& a, const RowSums<A>& b) { return combine(a, b); });
    double deficit = 0;
    if (problem.smoothing != 0) {
      for (std::int64_t c = threadIdx.x; c < problem.classes; c += blockDim.x) {
        deficit += static_cast<double>(problem.weight_at(c)) *
                   (static_cast<double>(sums.shift) - problem.score(offset, c));
      }
      deficit = block_sum(deficit, shared);
    }
    if (threadIdx.x == 0) {
      const double loss = row_loss(problem, row, sums, deficit, totals[1]);
      store_row(problem, row, sums, loss, row_losses, losses, logsumexp);
    }
  }
}

// A thread for a row: neighbouring rows are next to each other.
template <typename T>
__global__ void forward_columns(Problem<T> problem, const double* totals, double* row_losses, T* losses,
                                Accumulator<T>* logsumexp) {
  using A = Accumulator<T>;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t row = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
       row < problem.rows; row += step) {
    const std::int64_t offset = problem.offset(row);
    RowSums<A> sums{lowest<A>(), A(0)};
    for (std::int64_t c = 0; c < problem.classes; ++c) sums = add_score(sums, problem.score(offset, c));
    double deficit = 0;
    if (problem.smoothing != 0) {
      for (std::int64_t c = 0; c < problem.classes; ++c) {
        deficit += static_cast<double>(problem.weight_at(c)) *
                   (static_cast<double>(sums.shift) - problem.score(offset, c));
      }
    }
    const double loss = row_loss(problem, row, sums, deficit, totals[1]);
    store_row(problem, row, sums, loss, row_losses, losses, logsumexp);
  }
}

template <typename T>
__global__ void sum_losses(Problem<T> problem, const double* totals, const double* row_losses, T* loss) {
  __shared__ double shared[kMaxWarps];
  double sum = 0;
  for (std::int64_t row = threadIdx.x; row < problem.rows; row += blockDim.x) sum += row_losses[row];
  sum = block_sum(sum, shared);
  // Without weights eager's part of the targets is 0 / 0, whatever the part of all classes is.
  const bool has_none = totals[0] == 0 && problem.smoothing > 0;
  const double mean = has_none ? nan("") : sum / totals[0];
  if (threadIdx.x == 0) *loss = static_cast<T>(problem.reduction == Reduction::kMean ? mean : sum);
}

// logsumexp was rounded when it was stored: dividing by the sum of the exponentials takes that out again. A
// 16-bit result hides it anyway. dscores may be scores: each score is read by the thread that replaces it.
template <typename T>
__global__ void backward_rows(Problem<T> problem, const double* totals, const T* dloss,
                              const Accumulator<T>* logsumexp, T* dscores) {
  using A = Accumulator<T>;
  __shared__ double shared[kMaxWarps];
  for (std::int64_t row_index = blockIdx.x; row_index < problem.rows; row_index += gridDim.x) {
    const auto row = row_gradient(problem, row_index, dloss, logsumexp, totals);
    const std::int64_t offset = problem.offset(row_index);
    A scale = row.total;
    if constexpr (sizeof(T) > 2) {
      A sum = 0;
      for (std::int64_t c = threadIdx.x; c < problem.classes; c += blockDim.x) {
        sum += exponential(problem.score(offset, c) - row.logsumexp);
      }
      scale = static_cast<A>(row.total / block_sum(sum, shared));
    }
    for (std::int64_t c = threadIdx.x; c < problem.classes; c += blockDim.x) {
      dscores[offset + c] = score_gradient(problem, row, scale, offset, c);
    }
  }
}

template <typename T>
__global__ void backward_columns(Problem<T> problem, const double* totals, const T* dloss,
                                 const Accumulator<T>* logsumexp, T* dscores) {
  using A = Accumulator<T>;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t row_index = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
       row_index < problem.rows; row_index += step) {
    const auto row = row_gradient(problem, row_index, dloss, logsumexp, totals);
    const std::int64_t offset = problem.offset(row_index);
    A scale = row.total;
    if constexpr (sizeof(T) > 2) {
      A sum = 0;
      for (std::int64_t c = 0; c < problem.classes; ++c)
        sum += exponential(problem.score(offset, c) - row.logsumexp);
      scale = row.total / sum;
    }
    for (std::int64_t c = 0; c < problem.classes; ++c) {
      dscores[offset + c * problem.inner] = score_gradient(problem, row, scale, offset, c);
    }
  }
}

template <typename T>
Problem<T> make_problem(const at::Tensor& scores, const at::Tensor& target, const at::Tensor& weight,
                        const CrossEntropyOptions& options) {
  const auto shape = cross_entropy_shape(scores);
  return {scores.const_data_ptr<T>(),
          target.const_data_ptr<std::int64_t>(),
          weight.defined() ? weight.const_data_ptr<T>() : nullptr,
          shape.classes,
          shape.inner,
          shape.rows(),
          options.ignore_index,
          options.label_smoothing,
          options.reduction};
}

// Enough threads that each has some classes, and no more than a block may have.
int threads_for(std::int64_t classes) {
  const std::int64_t warps = std::clamp<std::int64_t>(classes / (4 * kWarp), 1, kMaxWarps);
  return static_cast<int>(warps * kWarp);
}

unsigned blocks_for(std::int64_t count) {
  return static_cast<unsigned>(std::clamp<std::int64_t>(count, 1, kMaxBlocks));
}

constexpr int kColumnThreads = 128;

unsigned column_blocks(std::int64_t rows) { return blocks_for((rows + kColumnThreads - 1) / kColumnThreads); }

template <typename T>
void forward(const Problem<T>& problem, double* workspace, T* loss, Accumulator<T>* logsumexp) {
  double* totals = workspace;
  double* row_losses = workspace + 2;
  launch(totals_kernel<T>, 1, kSumThreads, problem, totals);
  if (problem.inner == 1) {
    launch(forward_rows<T>, blocks_for(problem.rows), threads_for(problem.classes), problem, totals,
           row_losses, loss, logsumexp);
  } else {
    launch(forward_columns<T>, column_blocks(problem.rows), kColumnThreads, problem, totals, row_losses, loss,
           logsumexp);
  }
  if (problem.reduction == Reduction::kNone) return;
  launch(sum_losses<T>, 1, kSumThreads, problem, totals, row_losses, loss);
}

template <typename T>
void backward(const Problem<T>& problem, double* totals, const T* dloss, const Accumulator<T>* logsumexp,
              T* dscores) {
  launch(totals_kernel<T>, 1, kSumThreads, problem, totals);
  if (problem.inner == 1) {
    launch(backward_rows<T>, blocks_for(problem.rows), threads_for(problem.classes), problem, totals, dloss,
           logsumexp, dscores);
  } else {
    launch(backward_columns<T>, column_blocks(problem.rows), kColumnThreads, problem, totals, dloss,
           logsumexp, dscores);
  }
}

}  // namespace

void cross_entropy_forward(const at::Tensor& scores, const at::Tensor& target, const at::Tensor& weight,
                           const CrossEntropyOptions& options, at::Tensor& loss, at::Tensor& logsumexp) {
  const c10::cuda::CUDAGuard guard(scores.device());
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, scores.scalar_type(), "cross_entropy_forward", [&] {
        const auto problem = make_problem<scalar_t>(scores, target, weight, options);
        const auto workspace = at::empty({2 + problem.rows}, scores.options().dtype(at::kDouble));
        forward(problem, workspace.mutable_data_ptr<double>(), loss.mutable_data_ptr<scalar_t>(),
                logsumexp.mutable_data_ptr<Accumulator<scalar_t>>());
      });
}

void cross_entropy_backward(const at::Tensor& dloss, const at::Tensor& scores, const at::Tensor& target,
                            const at::Tensor& logsumexp, const at::Tensor& weight,
                            const CrossEntropyOptions& options, at::Tensor& dscores) {
  const c10::cuda::CUDAGuard guard(scores.device());
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, scores.scalar_type(), "cross_entropy_backward", [&] {
        const auto problem = make_problem<scalar_t>(scores, target, weight, options);
        const auto totals = at::empty({2}, scores.options().dtype(at::kDouble));
        backward(problem, totals.mutable_data_ptr<double>(), dloss.const_data_ptr<scalar_t>(),
                 logsumexp.const_data_ptr<Accumulator<scalar_t>>(), dscores.mutable_data_ptr<scalar_t>());
      });
}

}  // namespace rekindle::kernels::cuda
