#include "session/plan/checkpoints.h"

#include <algorithm>

namespace rekindle::session {
namespace {

std::uint32_t checkpoint_of(const Instruction& instruction) {
  return instruction.node == nullptr ? 0 : instruction.node->checkpoint();
}

}  // namespace

bool follows_checkpoints(const PlanRequest& request, const Programs& programs) {
  const bool is_free = !request.decides_recomputation() && request.budget.time > 0;  // no time: level 0
  return is_free && std::ranges::any_of(programs.forward.instructions, [](const Instruction& instruction) {
           return checkpoint_of(instruction) != 0;
         });
}

std::vector<std::uint32_t> checkpointed_values(const Programs& programs) {
  std::vector<std::uint32_t> made_in(programs.slots.size(), 0);  // a checkpoint, per root
  for (const Instruction& instruction : programs.forward.instructions) {
    for (const SlotId slot : instruction.outputs)
      made_in[programs.root_of(slot)] = checkpoint_of(instruction);
  }
  for (const Instruction& instruction : programs.forward.instructions) {
    for (const SlotId slot : instruction.inputs) {
      std::uint32_t& in = made_in[programs.root_of(slot)];
      if (in != checkpoint_of(instruction)) in = 0;
    }
  }
  std::vector<std::uint32_t> values;
  for (std::uint32_t slot = 1; slot < made_in.size(); ++slot) {
    if (made_in[slot] != 0) values.push_back(slot);
  }
  return values;
}

}  // namespace rekindle::session
