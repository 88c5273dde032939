// fused_instruction(): one instruction that computes what several pointwise ones compute. Internal to
// session/plan.
#pragma once

#include <unordered_set>
#include <vector>

#include "session/plan/plan.h"

namespace rekindle::session {

// Returns whether elements of the instruction have the same number in its output and in each input, counted
// row by row: all lie so, in the same sizes, but for inputs that are one number.
bool is_row_major(const Programs& programs, const Instruction& instruction);

// `members`: in order; each reads what earlier ones have computed element by element, in these sizes or, if
// it is_row_major(), in others. The instruction's outputs are those of the roots in `is_read` that they
// write; the last one's is the first. The others of their slots are from then on nobody's.
Instruction fused_instruction(Programs& programs, std::vector<Instruction> members, Sizes sizes,
                              const std::unordered_set<SlotId>& is_read, at::Device device);

}  // namespace rekindle::session
