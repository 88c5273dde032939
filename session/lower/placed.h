// Results of operators that allocate them, in memory of the plan. Internal to the session room.
#pragma once

#include <functional>
#include <string>

#include "session/lower/op.h"

namespace rekindle::session {

// Returns whether placed() works on that device. Where it does not, a lowering has to say `gives`.
bool can_place(at::Device device);

// The kernel that lets `compute` write its tensors into the instruction's first outputs: in place where the
// operator asks for memory of that size, or else by a copy. The result may be another tensor than planned
// for an output in `unused`, which nothing reads; it is then zero. Throws PlanMismatch for another dtype or
// size, and c10::Error where the operator keeps the memory; `name` is in messages.
Kernel placed(std::function<Tensors(const Args&)> compute, std::vector<Layout> planned,
              std::vector<bool> unused, std::string name);

}  // namespace rekindle::session
