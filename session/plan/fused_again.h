// fused_again(): forward values that a fused kernel of the backward had better make again than read.
//
// An example: under autocast, gelu by its formula leaves three float32 tensors for its gradient. All follow
// from its input, which has half the bytes of one of them; the gradient's kernel computes them in registers.
#pragma once

#include <cstdint>
#include <vector>

#include "session/plan/plan.h"

namespace rekindle::session {

// Values, as of step_of(), that the forward computes by pointwise instructions: those that only pointwise
// instructions of the backward read, and what lies between them and what the forward leaves for that. Which
// is less than they are.
std::vector<std::uint32_t> fused_again(const Programs& programs);

}  // namespace rekindle::session
