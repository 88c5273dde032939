// How a result of a graph lies in memory, as far as that does not depend on sizes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace rekindle::session {

struct ResultLayout {
  enum class Kind : std::uint8_t {
    kAny,
    kAsComputed,  // as the value of the graph does, a view perhaps
    // Without gaps; `numbers`: its dimensions, outermost first. Those left out have stride 0, as they had
    // when the graph was made; where the value computed has not, as a broadcast may end with its size, it is
    // contiguous.
    kOrder,
    kStrides,  // `numbers`: the strides
  };
  Kind kind = Kind::kAny;
  std::vector<std::int64_t> numbers;
};

// The strides that a result has to have whose value has `sizes` and the strides `computed`; nullopt for any.
// Throws c10::Error for a layout that is none of a tensor of this rank.
std::optional<std::vector<std::int64_t>> strides_of(const ResultLayout& layout, at::IntArrayRef sizes,
                                                    at::IntArrayRef computed);

// The part of a tensor with each element once of those that share memory where `strides` has 0.
at::Tensor each_once(at::Tensor tensor, at::IntArrayRef strides);

}  // namespace rekindle::session
