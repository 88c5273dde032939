#include "session/plan/step_of.h"

#include <algorithm>
#include <ranges>
#include <variant>

#include "device/memory.h"
#include "session/plan/operation_cost.h"
#include "src/graph/op_info.h"
#include "src/graph/torch_node.h"

namespace rekindle::session {
namespace {

// Whether the node computes its outputs from its inputs, and does nothing else: a second run gives the same.
bool is_repeatable(const graph::Node& node) {
  if (graph::is_torch(node)) return node.op_type().starts_with("aten.") && !graph::is_sized_by_data(node);
  if (node.is("Copy", graph::kRekindleDomain)) return false;  // of what it was in the forward
  return std::ranges::none_of(node.attributes(), [](const auto& attribute) {
    return std::holds_alternative<graph::GraphPtr>(attribute.second);
  });
}

class Description {
 public:
  Description(const Programs& programs, const KeptValues& kept, const DropRule& rule, at::Device device)
      : programs_(programs),
        kept_(kept),
        rule_(rule),
        device_(device),
        alignment_(device::alignment_of(device)),
        last_read_(programs.slots.size(), 0) {
    std::size_t at = 0;
    for (const Instruction& instruction : programs.backward.instructions) {
      ++at;
      for (const SlotId slot : instruction.inputs) last_read_[programs.root_of(slot)] = at;
    }
    last_repeat_ = last_read_;
    for (const Instruction& instruction : std::views::reverse(programs.forward.instructions)) {
      if (!is_repeatable(instruction)) continue;
      for (const SlotId slot : instruction.inputs) {
        std::size_t& last = last_repeat_[programs.root_of(slot)];
        last = std::max(last, last_repeat_of(instruction));
      }
    }
  }

  Step run() {
    step_.values.resize(programs_.slots.size());
    step_.backward = static_cast<std::uint32_t>(programs_.forward.instructions.size());
    for (const Program* program : {&programs_.forward, &programs_.backward}) {
      for (const Instruction& instruction : program->instructions) add(instruction);
    }
    for (const Program* program : {&programs_.forward, &programs_.backward}) {
      for (const SlotId slot : program->outputs) {
        StepValue& value = step_.values[programs_.root_of(slot)];
        value.place = StepValue::Place::kUncounted;
        value.can_drop = false;
      }
    }
    for (SlotId slot = 1; slot < programs_.slots.size(); ++slot) {
      if (kept_.is_read(programs_.slots[slot])) step_.values[programs_.root_of(slot)].is_kept = true;
    }
    return std::move(step_);
  }

 private:
  void add(const Instruction& instruction) {
    const auto at = static_cast<std::int32_t>(step_.operations.size());
    StepOperation operation;
    for (const SlotId slot : instruction.inputs) add_once(operation.reads, slot);
    for (const SlotId slot : instruction.outputs) add_once(operation.writes, slot);
    operation.seconds = estimated_seconds(programs_, instruction, device_);
    operation.replays = instruction.again != nullptr;
    const bool repeats = is_repeatable(instruction) && static_cast<std::uint32_t>(at) < step_.backward;
    for (const std::uint32_t slot : operation.writes)
      describe(slot, at, repeats && (!operation.replays || slot == operation.writes[0]));
    for (const std::size_t i : instruction.in_place) {
      if (may_take(instruction, instruction.inputs[i]))
        operation.may_take.push_back(programs_.root_of(instruction.inputs[i]));
    }
    // What a tape or a deferred instruction has got hold of stays alive with it.
    for (const std::uint32_t slot : operation.reads) {
      if (!is_plain(instruction)) step_.values[slot].can_drop = false;
    }
    step_.operations.push_back(std::move(operation));
  }

  void add_once(std::vector<std::uint32_t>& values, SlotId slot) const {
    const SlotId root = programs_.root_of(slot);
    if (root != kAbsentSlot && std::ranges::find(values, root) == values.end()) values.push_back(root);
  }

  void describe(SlotId id, std::int32_t made_by, bool repeats) {
    const Slot& slot = programs_.slots[id];
    StepValue& value = step_.values[id];
    value.made_by = made_by;
    if (slot.open || slot.layout || slot.storage == Storage::kHeld) return;
    const bool in_arena = slot.storage == Storage::kArena;
    value.bytes = in_arena ? (slot.bytes + alignment_ - 1) / alignment_ * alignment_
                           : slot.meta.unsafeGetTensorImpl()->storage().nbytes();
    value.place = in_arena ? StepValue::Place::kArena : StepValue::Place::kOutside;
    value.can_drop = repeats && slot.value != nullptr && value.bytes > rule_.above;
  }

  // Whether all that the instruction reads and writes is tensors whose sizes are known.
  bool is_plain(const Instruction& instruction) const {
    const auto plain = [&](SlotId slot) {
      const Slot& of = programs_.slots[programs_.root_of(slot)];
      return of.storage != Storage::kHeld && !of.open && !of.layout;
    };
    return std::ranges::all_of(instruction.inputs, plain) && std::ranges::all_of(instruction.outputs, plain);
  }

  // Before which instruction of the backward, counted from 1, it may run again at the latest; 0 for none.
  std::size_t last_repeat_of(const Instruction& instruction) const {
    std::size_t last = 0;
    for (const SlotId slot : instruction.outputs)
      last = std::max(last, last_repeat_[programs_.root_of(slot)]);
    return last;
  }

  bool is_repeatable(const Instruction& instruction) const {
    const auto has_name = [&](SlotId slot) {
      const Slot& of = programs_.slots[programs_.root_of(slot)];
      return of.storage == Storage::kAbsent || of.storage == Storage::kConstant || of.value != nullptr;
    };
    if (instruction.node == nullptr || (graph::is_random(*instruction.node) && !instruction.again))
      return false;
    const std::size_t last = last_repeat_of(instruction);
    const auto may_read = [&](SlotId slot) {
      const SlotId root = programs_.root_of(slot);
      const bool is_input = programs_.slots[root].storage == Storage::kInput;
      return has_name(slot) && (!rule_.from_saved_inputs || !is_input || last_read_[root] >= last);
    };
    const bool replays = instruction.again != nullptr;  // what the first run has made is read, too
    return session::is_repeatable(*instruction.node) && is_plain(instruction) &&
           std::ranges::all_of(instruction.inputs, may_read) &&
           (!replays || std::ranges::all_of(instruction.outputs, has_name));
  }

  bool may_take(const Instruction& instruction, SlotId input) const {
    const Slot &root = programs_.slots[programs_.root_of(input)],
               &output = programs_.slots[instruction.outputs[0]];
    return root.storage == Storage::kArena && output.storage == Storage::kArena &&
           root.bytes == output.bytes && root.meta.scalar_type() == output.meta.scalar_type();
  }

  const Programs& programs_;
  const KeptValues& kept_;
  const DropRule& rule_;
  const at::Device device_;
  const std::size_t alignment_;
  // By root, counted from 1: the last instruction of the backward that reads it, and the last that reads it
  // or what is computed again of it.
  std::vector<std::size_t> last_read_, last_repeat_;
  Step step_;
};

}  // namespace

Step step_of(const Programs& programs, const KeptValues& kept, const DropRule& rule, at::Device device) {
  return Description(programs, kept, rule, device).run();
}

}  // namespace rekindle::session
