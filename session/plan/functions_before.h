// Which Functions lie before which results, for results to which a backward brings no gradient.
//
// An example: a full backward hook on a module that returns a and b, and a loss of b alone. PyTorch's engine
// runs what is before a, too, with an undefined gradient. Most operators give none then. A Function of the
// user's, or a library's in C++, gets zeros: its parameters get gradients of zeros, by which AdamW decays
// them.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "src/autodiff/gradient.h"

namespace rekindle::session {

// Finds these Functions in the joint graph of one session. Thread-safe.
class FunctionsBefore {
 public:
  // The joint graph has to outlive this.
  explicit FunctionsBefore(const autodiff::JointGraph& joint) : joint_(joint) {}

  // Returns whether the graph would leave out a Function that eager runs: one that lies before one of
  // `results` (places in the joint graph's cotangent_of), and before none of those with a gradient,
  // `present`.
  bool any_left_out(const std::vector<bool>& present, const std::vector<std::size_t>& results) const;

 private:
  using Functions = std::vector<const graph::Node*>;
  const std::vector<Functions>& before() const;

  const autodiff::JointGraph& joint_;
  mutable std::once_flag searched_;
  mutable std::vector<Functions> before_;  // per cotangent
};

}  // namespace rekindle::session
