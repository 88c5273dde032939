// left_out(): which functions a backward that is asked for some gradients only does not call.
#pragma once

#include <vector>

#include "session/plan/plan.h"

namespace rekindle::session {

// Returns the gradients of functions that lead to none of the backward's outputs that are `wanted`: eager
// does not call their backwards, which may draw random numbers or log.
std::vector<const Instruction*> left_out(const Plan& plan, const std::vector<bool>& wanted);

}  // namespace rekindle::session
