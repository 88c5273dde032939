// repeat_instructions(): programs whose backward runs instructions of the forward again, as a schedule says.
//
// What an instruction makes again has a slot of its own, and so have the views of it that are read; both have
// the value of what they repeat.
#pragma once

#include "session/plan/plan.h"
#include "session/plan/step_schedule.h"

namespace rekindle::session {

// The schedule is of step_of() these programs.
Programs repeat_instructions(const Programs& programs, const StepSchedule& schedule);

}  // namespace rekindle::session
