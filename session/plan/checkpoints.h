// The user's activation checkpoints (torch.utils.checkpoint): of what is computed in one, a step holds what
// others read, and its backward makes the rest again.
#pragma once

#include <cstdint>
#include <vector>

#include "session/plan/plan.h"

namespace rekindle::session {

// Returns whether the plan does as checkpoints say: the forward has some, and the request leaves it to them.
bool follows_checkpoints(const PlanRequest& request, const Programs& programs);

// Returns the roots that a checkpoint's instructions make and that no other part of the forward reads.
std::vector<std::uint32_t> checkpointed_values(const Programs& programs);

}  // namespace rekindle::session
