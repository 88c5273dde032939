// partition(): which nodes of a joint graph run in the forward pass, and which values it must save for the backward.
#pragma once

#include <vector>

#include "src/autodiff/gradient.h"

namespace rekindle::autodiff {

struct Partition {
  std::vector<const graph::Node*> forward, backward;  // each in the graph's order
  // Values of the forward pass (inputs of the graph included) whose contents the backward pass reads. Shape-only uses
  // (graph/op_info.h) do not count.
  std::vector<const graph::Value*> saved;
};

// Forward nodes are those that a forward output depends on, or that draw random numbers; every other one is backward.
// Cheap nodes that only the backward needs stay in the backward.
Partition partition(const JointGraph& joint);

}  // namespace rekindle::autodiff
