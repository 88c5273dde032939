// What every CUDA kernel shares: its launch, and block reductions in a fixed order.
#pragma once

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include <type_traits>

namespace rekindle::kernels::cuda {

constexpr int kWarp = 32;
// Of a block. Twice as many would leave a thread 64 registers, and float64 on architecture 10.0 takes 70:
// such a block is not launched at all.
constexpr int kMaxWarps = 16;
constexpr int kMaxThreads = kWarp * kMaxWarps;

// Runs a kernel on the current stream: `blocks` blocks of `threads` threads each, without dynamic shared
// memory. Throws c10::Error where it cannot be launched.
template <typename... Parameters>
void launch(void (*kernel)(Parameters...), unsigned blocks, int threads,
            std::type_identity_t<Parameters>... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = c10::cuda::getCurrentCUDAStream();
  C10_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, arguments...));
}

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
    if (lane < warps) value = shared[lane];
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
