// The user's activation checkpoints (torch.utils.checkpoint): of what is computed in one, a step holds what
// others read, and its backward makes the rest again.
#pragma once

#include <cstdint>
#include <vector>

#include "session/plan/plan.h"

namespace rekindle::session {

// Whether the plan does as the checkpoints say: there are some, and no budget, level, plan, or plan of
// another part of the backward decides.
bool follows_checkpoints(const PlanRequest& request, const Programs& programs);

// Roots that a checkpoint's instructions make and that no other part of the forward reads.
std::vector<std::uint32_t> checkpointed_values(const Programs& programs);

}  // namespace rekindle::session
