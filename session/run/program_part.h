// ProgramPart: what a range of instructions has to do with the rest of a run. Internal to the session room.
#pragma once

#include <cstddef>
#include <vector>

#include "session/plan/plan.h"

namespace rekindle::session {

// Roots of slots, each once. Those in the arena, and constants, are in none: they are where they are.
struct ProgramPart {
  std::vector<SlotId> read;      // and not computed by the part itself
  std::vector<SlotId> computed;  // in memory that the plan does not place, or no tensors
  std::vector<SlotId> released;  // and not computed by the part itself
};

// Tells this of the instructions [begin, end) of one of the plan's programs.
ProgramPart part_of(const Plan& plan, const Program& program, std::size_t begin, std::size_t end);

}  // namespace rekindle::session
