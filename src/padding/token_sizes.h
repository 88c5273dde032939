// TokenSizes: which dimensions of a graph's values are its batch, its length, or both in one.
//
// An example: tokens are int64[b, s]. In three trials, with b and s of 4 and 16, 5 and 15, 6 and 14, a value
// has the sizes 64 x 768, 75 x 768 and 84 x 768: its first dimension is both in one, a row for each token. A
// dimension that only happens to be as large in one trial is not in the others.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "src/graph/graph.h"

namespace rekindle::padding {

using Sizes = std::vector<std::int64_t>;

// The sizes that values have when tokens are `batch` x `length`. A value whose sizes are not known is not in.
struct Trial {
  std::int64_t batch = 0, length = 0;
  std::unordered_map<const graph::Value*, Sizes> sizes;
};

// How the rows of a value that has one for each token come first in it.
enum class Leading : std::uint8_t { kNo, kBatchAndLength, kFlat };

class TokenSizes {
 public:
  // Precondition: at least two trials, of different batches and lengths.
  explicit TokenSizes(std::vector<Trial> trials) : trials_(std::move(trials)) {}

  bool knows(const graph::Value* value) const;
  // Of known values, here and below.
  int rank(const graph::Value* value) const;
  bool is_batch(const graph::Value* value, int axis) const;
  bool is_length(const graph::Value* value, int axis) const;
  bool is_one(const graph::Value* value, int axis) const { return constant(value, axis) == 1; }
  // The size that the dimension has in all trials.
  std::optional<std::int64_t> constant(const graph::Value* value, int axis) const;
  Leading leading(const graph::Value* value) const;
  // The dimension of `to`, a reshaped `from`, that is the dimension `axis` of `from`: as many elements lie
  // behind both. -1 when there is none.
  int reshaped_axis(const graph::Value* from, int axis, const graph::Value* to) const;

 private:
  template <typename Predicate>
  bool in_all(Predicate predicate) const;

  std::vector<Trial> trials_;
};

}  // namespace rekindle::padding
