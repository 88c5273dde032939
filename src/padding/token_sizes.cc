#include "src/padding/token_sizes.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace rekindle::padding {
namespace {

std::int64_t elements_behind(const Sizes& sizes, int axis) {
  return std::accumulate(sizes.begin() + axis + 1, sizes.end(), std::int64_t{1}, std::multiplies<>());
}

}  // namespace

template <typename Predicate>
bool TokenSizes::in_all(Predicate predicate) const {
  return std::ranges::all_of(trials_, predicate);
}

bool TokenSizes::knows(const graph::Value* value) const {
  if (value == nullptr) return false;
  return in_all([&](const Trial& trial) {
    const auto found = trial.sizes.find(value);
    return found != trial.sizes.end() && found->second.size() == trials_[0].sizes.at(value).size();
  });
}

int TokenSizes::rank(const graph::Value* value) const {
  return static_cast<int>(trials_[0].sizes.at(value).size());
}

bool TokenSizes::is_batch(const graph::Value* value, int axis) const {
  return in_all([&](const Trial& trial) {
    return trial.sizes.at(value)[static_cast<std::size_t>(axis)] == trial.batch;
  });
}

bool TokenSizes::is_length(const graph::Value* value, int axis) const {
  return in_all([&](const Trial& trial) {
    return trial.sizes.at(value)[static_cast<std::size_t>(axis)] == trial.length;
  });
}

std::optional<std::int64_t> TokenSizes::constant(const graph::Value* value, int axis) const {
  const auto at = static_cast<std::size_t>(axis);
  const std::int64_t size = trials_[0].sizes.at(value)[at];
  const bool same = in_all([&](const Trial& trial) { return trial.sizes.at(value)[at] == size; });
  return same ? std::optional(size) : std::nullopt;
}

Leading TokenSizes::leading(const graph::Value* value) const {
  if (!knows(value)) return Leading::kNo;
  if (rank(value) >= 2 && is_batch(value, 0) && is_length(value, 1)) return Leading::kBatchAndLength;
  const auto is_flat = [&](const Trial& trial) {
    return trial.sizes.at(value)[0] == trial.batch * trial.length;
  };
  return rank(value) >= 1 && in_all(is_flat) ? Leading::kFlat : Leading::kNo;
}

int TokenSizes::reshaped_axis(const graph::Value* from, int axis, const graph::Value* to) const {
  for (int candidate = 0; candidate < rank(to); ++candidate) {
    const bool same = in_all([&](const Trial& trial) {
      const Sizes &before = trial.sizes.at(from), &after = trial.sizes.at(to);
      return before[static_cast<std::size_t>(axis)] == after[static_cast<std::size_t>(candidate)] &&
             elements_behind(before, axis) == elements_behind(after, candidate);
    });
    if (same) return candidate;
  }
  return -1;
}

}  // namespace rekindle::padding
