// What every CUDA kernel shares: block reductions in a fixed order.
#pragma once

#include <c10/cuda/CUDAException.h>

namespace rekindle::kernels::cuda {

constexpr int kWarp = 32;
constexpr int kMaxWarps = 32;

// Combines one value of each thread of the block with an associative `combine`; every thread gets the result.
// `shared` holds kMaxWarps values and may be used again after the call. blockDim.x is a multiple of 32.
template <typename T, typename Shuffle, typename Combine>
__device__ T block_reduce(T value, T* shared, Shuffle shuffle, Combine combine) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) value = combine(value, shuffle(value, offset));
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const int warps = blockDim.x / kWarp;
  if (lane == 0) shared[warp] = value;
  __syncthreads();
  if (warp == 0) {
    value = shared[lane < warps ? lane : 0];
    for (int offset = kWarp / 2; offset > 0; offset /= 2) {
      const T other = shuffle(value, offset);
      if (lane + offset < warps) value = combine(value, other);
    }
    if (lane == 0) shared[0] = value;
  }
  __syncthreads();
  value = shared[0];
  __syncthreads();
  return value;
}

__device__ inline double block_sum(double value, double* shared) {
  return block_reduce(
      value, shared, [](double v, int offset) { return __shfl_down_sync(0xffffffffu, v, offset); },
      [](double a, double b) { return a + b; });
}

}  // namespace rekindle::kernels::cuda
