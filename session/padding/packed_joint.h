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
  // With three more forward inputs, after the others: see padding::PackedGraph. Outputs, cotangents and
  // gradients are those of the joint graph.
  autodiff::JointGraph joint;
  padding::PackedGraph packed;  // without its graph
};

// How many inputs it has more.
inline constexpr std::size_t kRowInputs = 3;

// `inputs`: of the call for which it is made first; it is for all sizes that the graph leaves open.
// kUnsupported, saying why, when no row can be left out.
Result<PackedJoint> packed_joint(const autodiff::JointGraph& joint, std::span<const at::Tensor> inputs);

}  // namespace rekindle::session
