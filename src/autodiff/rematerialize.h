// rematerialize(): what the backward pass can compute again cheaply, from what it reads anyway, is not saved.
//
// Two fifths of what a BERT layer saves are results of elementwise ops whose operands are saved as well: a
// GELU beside its input, a dropout beside its input and mask. Such a value is computed a second time where
// the backward pass first reads it, by the same op from the same numbers, so that no bit of any gradient
// changes. After Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016, which recomputes more
// and pays more.
#pragma once

#include <string_view>

#include "src/autodiff/gradient.h"

namespace rekindle::autodiff {

// Of a node of the backward pass: the name of the forward value that its first output equals. A plan may keep
// that value instead, where it is small.
inline constexpr std::string_view kRecomputes = "recomputes";

// The forward value that `node` computes again; null for any other node.
const graph::Value* recomputed_value(const graph::Graph& graph, const graph::Node& node);

// Adds such nodes to a joint graph. Only values that nobody outside of it can write are recomputed, and only
// from such values: neither inputs, such as parameters, nor outputs.
void rematerialize(JointGraph& joint);

}  // namespace rekindle::autodiff
