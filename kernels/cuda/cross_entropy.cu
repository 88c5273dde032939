#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>

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

}  // namespace

template <typename T>
void launch_forward(const Problem<T>& problem, double* workspace, T* loss, Accumulator<T>* logsumexp) {
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
void launch_backward(const Problem<T>& problem, double* totals, const T* dloss,
                     const Accumulator<T>* logsumexp, T* dscores) {
  launch(totals_kernel<T>, 1, kSumThreads, problem, totals);
  if (problem.inner == 1) {
    launch(backward_rows<T>, blocks_for(problem.rows), threads_for(problem.classes), problem, totals, dloss,
           logsumexp, dscores);
  } else {
    launch(backward_columns<T>, column_blocks(problem.rows), kColumnThreads, problem, totals, dloss,
           logsumexp, dscores);
  }
}

#define REKINDLE_CROSS_ENTROPY(T)                                                \
  template void launch_forward(const Problem<T>&, double*, T*, Accumulator<T>*); \
  template void launch_backward(const Problem<T>&, double*, const T*, const Accumulator<T>*, T*);

REKINDLE_CROSS_ENTROPY(float)
REKINDLE_CROSS_ENTROPY(double)
REKINDLE_CROSS_ENTROPY(c10::BFloat16)
REKINDLE_CROSS_ENTROPY(c10::Half)
#undef REKINDLE_CROSS_ENTROPY

}  // namespace rekindle::kernels::cuda
