// repeat_instructions(): programs whose backward runs instructions of the forward again, as a schedule says.
//
// An instruction that runs again writes to slots of its own. Those who read it get these slots, or new views
// of them. Each new slot names the graph's value that the old one names.
#pragma once

#include "session/plan/plan.h"
#include "session/plan/step_schedule.h"

namespace rekindle::session {

// The schedule is of step_of() these programs.
Programs repeat_instructions(const Programs& programs, const StepSchedule& schedule);

}  // namespace rekindle::session
