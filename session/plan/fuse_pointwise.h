// fuse_pointwise(): pointwise instructions of an accelerator that follow from each other become one.
//
// An example: gelu by its formula is eight instructions. As one kernel they read x once and write the result
// once; what lies in between is in no memory.
#pragma once

#include "session/plan/stages.h"

namespace rekindle::session {

// Returns whether the request asks for fused instructions and its device has a compiler.
bool fuses(const PlanRequest& request);

// Each group of instructions runs where its last one ran: nothing but the group reads what it has computed
// until then, and all of it is absent where one of it is. Values that only the group reads have no memory.
Claimed fuse_pointwise(const PlanRequest& request, Claimed claimed);

}  // namespace rekindle::session
