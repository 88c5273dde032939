// How many rows are worth a thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace rekindle::kernels::cpu {

inline constexpr std::int64_t kGrainElements = 1 << 14;  // fewer are not worth another thread

// Returns the grain that at::parallel_for takes for rows of `elements` each.
inline std::int64_t grain_of(std::int64_t elements) {
  return std::max<std::int64_t>(1, kGrainElements / std::max<std::int64_t>(1, elements));
}

}  // namespace rekindle::kernels::cpu
