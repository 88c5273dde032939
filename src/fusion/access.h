// Access: where a fused kernel finds the elements of its operands: over common sizes, a stride of each.
//
// An example: x[8, 512, 768] + bias[768] has the sizes [4096, 768], and the strides [768, 1] and [0, 1].
#pragma once

#include <cstdint>
#include <vector>

namespace rekindle::fusion {

using Numbers = std::vector<std::int64_t>;

struct Access {
  Numbers sizes;                 // outermost first; at least one
  std::vector<Numbers> strides;  // by operand, in elements
  std::int64_t elements() const;
};

// The same elements by the fewest dimensions, in the order in which they lie in the last operand, which has
// each of them at a place of its own.
Access collapsed(const Access& access);

// How many neighbours a thread takes: 4, 2 or 1 elements of the last dimension, which they divide.
std::int64_t width_of(const Access& access);

}  // namespace rekindle::fusion
