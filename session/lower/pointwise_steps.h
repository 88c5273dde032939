// pointwise_steps() says what a node computes of each element, so that one kernel can compute several nodes.
// Internal to the session room.
#pragma once

#include <vector>

#include "session/lower/op.h"
#include "src/fusion/body.h"

namespace rekindle::session {

// The steps whose last one is output 0, of inputs that are broadcast to its sizes, as PyTorch's kernels of an
// accelerator compute them. None of a node that is not pointwise, draws, has further results that are read,
// or computes in a type that has no kernels.
std::vector<fusion::Step> pointwise_steps(const LowerContext& context, const Lowering& lowering);

}  // namespace rekindle::session
