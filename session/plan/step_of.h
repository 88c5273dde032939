// step_of(): programs as the search for a budget sees them. A value's number is that of its slot; slots that
// own no memory have values that nothing reads.
#pragma once

#include "session/plan/plan.h"
#include "session/plan/step_schedule.h"

namespace rekindle::session {

// Which values may be dropped.
struct DropRule {
  std::size_t above = 0;  // bytes
  // Only those that are made from inputs that the backward reads as late as it would run them again: a caller
  // may write to others before it, and a hook of a gradient in its course.
  bool from_saved_inputs = false;
};

Step step_of(const Programs& programs, const KeptValues& kept, const DropRule& rule, at::Device device);

}  // namespace rekindle::session
