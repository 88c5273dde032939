// kernel_source(): the source of the kernel that computes a body, and the numbers that it is launched with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "src/fusion/access.h"
#include "src/fusion/body.h"

namespace rekindle::fusion {

inline constexpr unsigned kThreads = 256;  // of a block
inline constexpr const char* kKernelName = "fused";

// Kernels whose sizes, strides and addresses differ have one source, unless they need other steps for that.
struct Kernel {
  std::string source;
  // Its only parameter, an array of 64-bit words. Words from first_address on are addresses, which are 0
  // here: one for each input, then one for each output.
  std::vector<std::int64_t> words;
  std::size_t first_address = 0;
  std::vector<std::size_t> alignment;  // of each address, in bytes
  std::int64_t threads = 0;            // at least so many

  unsigned blocks() const { return static_cast<unsigned>((threads + kThreads - 1) / kThreads); }
};

// `access`: of the body's inputs, then of its outputs; collapsed(), and with at least one element. An output
// may lie in the memory of an input that is accessed alike.
Kernel kernel_source(const Body& body, const Access& access);

// What kernels are written in, before their source: first that of an NVIDIA GPU (CUDA C++ for NVRTC, without
// headers), or another one for tests; then what is the same for all. An op rounds as PyTorch's kernel of it,
// and sums and products are never contracted with other steps.
const char* cuda_language();
const char* common_language();

}  // namespace rekindle::fusion
