#include "session/run/program_part.h"

#include <algorithm>
#include <initializer_list>
#include <unordered_set>

namespace rekindle::session {
namespace {

// In the order in which they came, each once.
class Roots {
 public:
  explicit Roots(std::vector<SlotId>& all) : all_(all) {}
  bool contains(SlotId root) const { return known_.contains(root); }
  void add(SlotId root) {
    if (known_.insert(root).second) all_.push_back(root);
  }

 private:
  std::vector<SlotId>& all_;
  std::unordered_set<SlotId> known_;
};

}  // namespace

ProgramPart part_of(const Plan& plan, const Program& program, std::size_t begin, std::size_t end) {
  ProgramPart part;
  Roots read(part.read), computed(part.computed), released(part.released);
  const auto is_one_of = [&](SlotId root, std::initializer_list<Storage> kinds) {
    return std::ranges::find(kinds, plan.slots[root].storage) != kinds.end();
  };
  for (std::size_t i = begin; i < end; ++i) {
    const Instruction& instruction = program.instructions[i];
    for (const SlotId slot : instruction.inputs) {
      const SlotId root = plan.root_of(slot);
      const bool stays = is_one_of(root, {Storage::kAbsent, Storage::kConstant, Storage::kArena});
      if (!stays && !computed.contains(root)) read.add(root);
    }
    for (const SlotId slot : instruction.outputs) {
      const SlotId root = plan.root_of(slot);
      if (is_one_of(root, {Storage::kFresh, Storage::kGiven, Storage::kHeld})) computed.add(root);
    }
    for (const SlotId slot : instruction.release) {
      if (!computed.contains(plan.root_of(slot))) released.add(plan.root_of(slot));
    }
  }
  return part;
}

}  // namespace rekindle::session
