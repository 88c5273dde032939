// CUDA's words for a kernel, in terms of machine.h. It comes before the first line of each emulated `.cu`
// file.
#pragma once

#include <c10/macros/Macros.h>

#include <cmath>

#include "tests/cuda_emulation/machine.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
// The program has no other memory of this kind, so that the machine knows where it is (memory.cc).
#define __shared__ static thread_local

#undef CUDA_KERNEL_ASSERT
#define CUDA_KERNEL_ASSERT(condition) \
  ((condition) ? (void)0 : ::rekindle::emulation::fail("assertion: " #condition))

inline void __syncthreads(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
  ::rekindle::emulation::barrier(file, line);
}
inline void __syncwarp(unsigned mask = ~0U) { ::rekindle::emulation::warp_barrier(mask); }

template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned lanes) {
  ::rekindle::emulation::shuffle_down(mask, &value, sizeof(T), lanes);
  return value;
}

// The runtime, as far as kernels/cuda/launch.cuh goes.
using cudaStream_t = void*;
using cudaError_t = int;
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3() = default;
  explicit dim3(unsigned size) : x(size) {}
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};
template <typename... Parameters>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Parameters... arguments) {
  ::rekindle::emulation::launch([=] { kernel(arguments...); }, config->gridDim.x, config->blockDim.x);
  return 0;
}
