// partition(): which nodes of a joint graph run in the forward pass, and
// which values it must save for the backward.
#pragma once

#include <vector>

#include "src/autodiff/gradient.h"

namespace rekindle::autodiff {

struct Partition {
  // Each in the graph's order. A node that no output depends on is in neither.
  std::vector<const graph::Node*> forward, backward;
  // Values of the forward pass (inputs of the graph included) whose contents the backward pass reads, inputs
  // first, then in the graph's order. Shape-only uses (graph/op_info.h) do not count. Constants are not
  // saved: they are there.
  std::vector<const graph::Value*> saved;
};

// Forward nodes are those that a forward output depends on, or that draw random numbers (whoever
// uses the draw), with what these depend on; every other one is backward: cheap nodes that only
// the backward needs stay there.
Partition partition(const JointGraph& joint);

}  // namespace rekindle::autodiff
