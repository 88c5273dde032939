// The last steps of PlanBuilder: lifetimes, in-place takeovers, arena offsets, what the forward saves.
#include <algorithm>

#include "session/plan_builder.h"

namespace rekindle::session {

std::vector<Instruction*> PlanBuilder::timeline() {
  std::vector<Instruction*> all;
  for (Program* program : {&plan_->forward, &plan_->backward}) {
    for (Instruction& instruction : program->instructions) all.push_back(&instruction);
  }
  return all;
}

// Per root slot, the last instruction of the timeline that touches it; -1 when none does.
std::vector<std::int32_t> PlanBuilder::last_uses(const std::vector<Instruction*>& timeline) {
  std::vector<std::int32_t> last(plan_->slots.size(), -1);
  for (std::size_t i = 0; i < timeline.size(); ++i) {
    for (const SlotId slot : timeline[i]->inputs) last[root_of(slot)] = static_cast<std::int32_t>(i);
    for (const SlotId slot : timeline[i]->outputs) last[root_of(slot)] = static_cast<std::int32_t>(i);
  }
  // Kept values live until the backward begins, whichever backward that will be.
  const auto begin = static_cast<std::int32_t>(plan_->forward.instructions.size());
  const std::unordered_set<std::string> keep(request_.keep.begin(), request_.keep.end());
  for (SlotId slot = 1; slot < plan_->slots.size(); ++slot) {
    const graph::Value* value = plan_->slots[slot].value;
    const SlotId root = root_of(slot);
    if (value != nullptr && last[root] >= 0 && last[root] < begin && keep.contains(value->name())) last[root] = begin;
  }
  return last;
}

// Lets output 0 use the memory of an input that dies here, where the lowering allows it and layouts agree.
void PlanBuilder::take_over_memory(std::size_t position, const Instruction& instruction,
                                   std::vector<std::int32_t>& last) {
  const SlotId output = instruction.outputs[0];
  if (plan_->slots[output].storage != Storage::kArena) return;
  const at::Tensor& wanted = plan_->slots[output].meta;
  for (const std::size_t i : instruction.in_place) {
    const SlotId input = instruction.inputs[i], root = root_of(input), buffer = buffer_of_[root];
    const at::Tensor& given = plan_->slots[input].meta;
    const bool same = given.scalar_type() == wanted.scalar_type() && given.sizes() == wanted.sizes() &&
                      given.strides() == wanted.strides() && given.storage_offset() == 0 &&
                      plan_->slots[root].bytes == plan_->slots[output].bytes;
    if (plan_->slots[root].storage != Storage::kArena || !same) continue;
    if (last[buffer] != static_cast<std::int32_t>(position)) continue;
    // Another input in the same memory must be laid out alike: the kernel reads it while it writes.
    const bool safe = std::all_of(instruction.inputs.begin(), instruction.inputs.end(), [&](SlotId other) {
      const SlotId other_root = root_of(other);
      if (other == kAbsentSlot || buffer_of_[other_root] != buffer) return true;
      const at::Tensor& meta = plan_->slots[other].meta;
      return meta.sizes() == given.sizes() && meta.strides() == given.strides() && meta.storage_offset() == 0;
    });
    if (!safe) continue;
    buffer_of_[output] = buffer;
    last[buffer] = std::max(last[buffer], last[output]);
    return;
  }
}

void PlanBuilder::place() {
  const std::vector<Instruction*> instructions = timeline();
  std::vector<std::int32_t> last = last_uses(instructions);
  buffer_of_.resize(plan_->slots.size());
  for (SlotId slot = 0; slot < buffer_of_.size(); ++slot) buffer_of_[slot] = slot;
  std::vector<Buffer> buffers;
  std::vector<SlotId> owners;
  std::vector<std::size_t> buffer_index(plan_->slots.size());
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    take_over_memory(i, *instructions[i], last);
    for (const SlotId slot : instructions[i]->outputs) {
      Slot& written = plan_->slots[slot];
      if (written.storage == Storage::kFresh) instructions[i]->allocate.push_back(slot);
      if (written.storage != Storage::kArena || buffer_of_[slot] != slot) continue;
      buffer_index[slot] = buffers.size();
      const auto position = static_cast<std::int32_t>(i);
      buffers.push_back({written.bytes, position, position});
      owners.push_back(slot);
    }
  }
  for (std::size_t b = 0; b < buffers.size(); ++b) buffers[b].last = std::max(buffers[b].first, last[owners[b]]);
  plan_->arena_bytes = plan_memory(buffers);
  for (const Instruction* instruction : instructions) {
    for (const SlotId slot : instruction->outputs) {
      if (plan_->slots[slot].storage != Storage::kArena) continue;
      plan_->slots[slot].offset = buffers[buffer_index[buffer_of_[slot]]].offset;
    }
  }
}

void PlanBuilder::find_saved() {
  std::vector<bool> written(plan_->slots.size(), false), seen(plan_->slots.size(), false);
  for (const Instruction& instruction : plan_->backward.instructions) {
    for (const SlotId slot : instruction.outputs) written[slot] = true;
  }
  for (const SlotId slot : plan_->backward.inputs) written[slot] = true;
  for (const Instruction& instruction : plan_->backward.instructions) {
    for (const SlotId slot : instruction.inputs) {
      const SlotId root = root_of(slot);
      const Storage storage = plan_->slots[root].storage;
      if (written[root] || seen[root] || storage == Storage::kConstant || storage == Storage::kAbsent) continue;
      seen[root] = true;
      plan_->saved.push_back(root);
      if (storage == Storage::kArena) plan_->saved_bytes += plan_->slots[root].bytes;
    }
  }
}

}  // namespace rekindle::session
