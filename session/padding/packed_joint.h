// packed_joint(): the joint graph that computes fewer rows, made from one that computes all.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

#include "src/autodiff/gradient.h"
#include "src/base/result.h"
#include "src/padding/pack_rows.h"

namespace rekindle::session {

struct PackedJoint {
  // With padding::kRowInputs more forward inputs for each packing, in order, after the others.
  // Outputs, cotangents and gradients are those of the joint graph.
  autodiff::JointGraph joint;
  // For tokens of each kind, such as an encoder's and a decoder's, without their graphs. The question graph
  // of one takes the inputs of those before it, too.
  std::vector<padding::PackedGraph> packings;
};

// Returns whether packed_joint() can tell batch and length from other sizes by these inputs; it cannot by
// sequences of fewer than four tokens.
bool tells_rows(const autodiff::JointGraph& joint, std::span<const at::Tensor> inputs);

// `written_results`: as of SessionOptions. `inputs`: of the call for which it is made first; it is for all
// sizes that the graph leaves open. kUnsupported, saying why, when no row can be left out.
Result<PackedJoint> packed_joint(const autodiff::JointGraph& joint, std::size_t written_results,
                                 std::span<const at::Tensor> inputs);

}  // namespace rekindle::session
