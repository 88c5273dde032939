// differentiate(): a graph and what its gradients are wanted for -> one joint graph of forward and backward.
//
// The reverse walk does everything common: accumulation of cotangents, summing over broadcast dimensions,
// pruning of what nobody asked for, zeros for cotangents a rule needs but nobody gave. Rules (rules/*.cc) are
// one function per op.
#pragma once

#include <cstddef>
#include <memory>
#include <unordered_set>
#include <vector>

#include "src/base/result.h"
#include "src/graph/graph.h"

namespace rekindle::autodiff {

struct JointGraph {
  // Inputs: the forward inputs, then one cotangent per entry of cotangent_of.
  // Outputs: the forward outputs, then one gradient per entry of gradient_of.
  std::unique_ptr<graph::Graph> graph;
  std::size_t forward_inputs = 0;
  std::size_t forward_outputs = 0;
  // Extra input i is the cotangent of forward output cotangent_of[i] (same shape and dtype).
  std::vector<std::size_t> cotangent_of;
  // Extra output i is the gradient with respect to forward input gradient_of[i] (same shape and dtype).
  std::vector<std::size_t> gradient_of;
};

// `needs_gradient[i]`: the gradient of input i is wanted. Outputs that depend differentiably on a wanted
// input get a cotangent, in output order; wanted inputs that no such output depends on get no gradient (their
// gradient is None). Without any, the joint graph is the forward graph. kUnsupported, naming the op, when a
// needed op has no rule.
Result<JointGraph> differentiate(const graph::Graph& forward, const std::vector<bool>& needs_gradient);

// The joint graph when only some cotangents are given: present[i] tells whether cotangent i is. Backward
// values that depend on absent ones only are absent (gradients too); where a node needs an absent one beside
// a present one, it gets zeros. The inputs of the absent cotangents are gone from the result.
// Values that stay keep their names, and the forward part stays as it is.
Result<JointGraph> restrict_cotangents(const JointGraph& joint, const std::vector<bool>& present);

// Leaves out the gradients with respect to all forward inputs but these, and what only they need.
void restrict_gradients(JointGraph& joint, const std::unordered_set<std::size_t>& inputs);

}  // namespace rekindle::autodiff
