#include "session/run/left_out.h"

#include <algorithm>

namespace rekindle::session {

std::vector<const Instruction*> left_out(const Plan& plan, const std::vector<bool>& wanted) {
  if (std::ranges::find(wanted, false) == wanted.end()) return {};
  std::vector<bool> leads(plan.slots.size(), false);  // per root
  for (std::size_t output = 0; output < wanted.size(); ++output) {
    if (wanted[output]) leads[plan.root_of(plan.backward.outputs[output])] = true;
  }
  const auto does_lead = [&](SlotId slot) { return leads[plan.root_of(slot)]; };
  std::vector<const Instruction*> found;
  const auto& instructions = plan.backward.instructions;
  for (auto each = instructions.rbegin(); each != instructions.rend(); ++each) {
    if (std::ranges::any_of(each->outputs, does_lead)) {
      for (const SlotId slot : each->inputs) leads[plan.root_of(slot)] = true;
    } else if (each->absence.runs) {
      found.push_back(&*each);
    }
  }
  return found;
}

}  // namespace rekindle::session
