// plan_memory(): offsets in one arena for buffers with known sizes and lifetimes.
//
// Greedy by size, best fit (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference",
// 2020): the largest buffers first, each in the smallest gap left by those it overlaps in time. Where that
// leaves gaps at the fullest moment, other orders are tried, and the smallest arena is taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rekindle::session {

struct Buffer {
  std::size_t bytes = 0;             // rounded up to the alignment in the end
  std::int32_t first = 0, last = 0;  // instruction numbers, both inclusive
  std::size_t offset = 0;            // result; a multiple of the alignment
};

// Sets every offset and returns the arena's size in bytes. Buffers whose
// lifetimes share an instruction never overlap.
std::size_t plan_memory(std::vector<Buffer>& buffers, std::size_t alignment);

}  // namespace rekindle::session
