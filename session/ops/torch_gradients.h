// What gradients of PyTorch's operators share. Internal to session/ops.
#pragma once

#include <array>

#include "session/lower/op.h"

namespace rekindle::session {

// Of three gradients, which the node has an output for.
using Wanted = std::array<bool, 3>;
// Throws c10::Error where the node's outputs do not fit its attribute.
Wanted wanted_of(const LowerContext& context);

// The constant attribute `name`; throws c10::Error where it is no number.
double number_of(const graph::Node& node, const char* name);

// BatchNormGradient without a relu, of any dtypes, in memory that PyTorch allocates.
Lowering batch_norm_gradient_by_torch(const LowerContext& context);

}  // namespace rekindle::session
