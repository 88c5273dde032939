#include "session/plan/repeat_instructions.h"

#include <algorithm>
#include <map>
#include <utility>

namespace rekindle::session {
namespace {

using Event = StepSchedule::Event;

class Repetition {
 public:
  Repetition(const Programs& programs, const StepSchedule& schedule)
      : made_(programs), schedule_(schedule), root_of_(schedule.instances.size(), kAbsentSlot) {
    for (SlotId slot = 1; slot < programs.slots.size(); ++slot) root_of_[slot] = slot;
    for (Instruction* instruction : made_.timeline()) originals_.push_back(std::move(*instruction));
  }

  Programs run() {
    const std::size_t forward = made_.forward.instructions.size();
    made_.backward.instructions.clear();
    for (std::size_t at = 0; at < schedule_.events.size(); ++at) {
      const Event& event = schedule_.events[at];
      if (at < forward) {
        made_.forward.instructions[at] = originals_[event.operation];
      } else {
        made_.backward.instructions.push_back(event.is_again() ? again(event) : itself(event));
      }
    }
    return std::move(made_);
  }

 private:
  Instruction itself(const Event& event) {
    Instruction instruction = originals_[event.operation];
    read(instruction, event);
    return instruction;
  }

  Instruction again(const Event& event) {
    Instruction instruction = originals_[event.operation];
    if (instruction.again) {
      instruction.kernel = std::move(instruction.again);
      instruction.inputs.insert(instruction.inputs.end(), instruction.outputs.begin() + 1,
                                instruction.outputs.end());
      instruction.outputs.resize(1);
    }
    read(instruction, event);
    for (const std::uint32_t written : event.writes) {
      const SlotId from = schedule_.instances[written].value;
      std::ranges::replace(instruction.outputs, from, made_again(written, from));
    }
    return instruction;
  }

  SlotId made_again(std::uint32_t instance, SlotId from) {
    const Slot slot = made_.slots[from];
    // A result's copy is nobody's result.
    const Storage storage = slot.storage == Storage::kFresh ? Storage::kArena : slot.storage;
    return root_of_[instance] = made_.add(storage, slot.meta, slot.value);
  }

  void read(Instruction& instruction, const Event& event) {
    std::map<SlotId, SlotId> now;  // roots
    for (const std::uint32_t instance : event.reads) {
      const SlotId before = schedule_.instances[instance].value;
      if (root_of_[instance] != before) now[before] = root_of_[instance];
    }
    if (now.empty()) return;
    for (SlotId& slot : instruction.inputs) {
      const auto changed = now.find(made_.root_of(slot));
      if (changed != now.end()) slot = on(slot, changed->second);
    }
  }

  // What `slot` is of its root, of another root.
  SlotId on(SlotId slot, SlotId root) {
    if (made_.slots[slot].storage != Storage::kView) return root;
    const auto known = views_.find({slot, root});
    if (known != views_.end()) return known->second;
    const SlotId base = on(made_.slots[slot].base, root);
    const Slot of = made_.slots[slot];
    const SlotId view = made_.add(Storage::kView, of.meta, of.value);
    made_.slots[view].base = base;
    made_.slots[view].view = of.view;
    made_.slots[base].views.push_back(view);
    return views_[{slot, root}] = view;
  }

  Programs made_;
  const StepSchedule& schedule_;
  std::vector<SlotId> root_of_;  // per instance
  std::vector<Instruction> originals_;
  std::map<std::pair<SlotId, SlotId>, SlotId> views_;  // by what they repeat, and root
};

}  // namespace

Programs repeat_instructions(const Programs& programs, const StepSchedule& schedule) {
  return Repetition(programs, schedule).run();
}

}  // namespace rekindle::session
