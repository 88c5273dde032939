// MemoryBudget: what a step's activations may take, or what may be paid for less of them.
#pragma once

#include <cstddef>

namespace rekindle::session {

struct MemoryBudget {
  std::size_t bytes = 0;  // 0: see `share`
  double share = 0;       // of what they take without a budget; 0: there is none
  // Without a budget: the share of a step's estimated time that may go into computing values again.
  // `anything`: into whatever can run again, as under a budget; otherwise only into large values that are
  // made from what the backward reads anyway.
  double time = 0;
  bool anything = false;

  explicit operator bool() const { return bytes > 0 || share > 0; }
  // In bytes, where they take so many without.
  std::size_t of(std::size_t without) const {
    return bytes > 0 ? bytes : static_cast<std::size_t>(share * static_cast<double>(without));
  }
};

}  // namespace rekindle::session
