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

// The text that comes before a kernel's source is that of a compiler, such as cuda_language() (CUDA C++ for
// NVRTC, without headers), and then common_language(). The first defines KERNEL, BLOCK, THREAD, WORD,
// FUNCTION, number_of, bits_of, Half with value_of and keep, and add, sub and mul of floats, which round and
// are never contracted.
const char* cuda_language();
const char* common_language();

}  // namespace rekindle::fusion
