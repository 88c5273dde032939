// Memory: what may be in the arena, lifetimes, in-place takeovers, offsets,
// what the forward saves, what goes early.
#include <algorithm>

#include "session/plan/plan_builder.h"

namespace rekindle::session {

// The arena is reused while a kernel still holds on to these.
void PlanBuilder::own_memory(const std::vector<SlotId>& slots) {
  for (const SlotId slot : slots) {
    Slot& root = plan_->slots[root_of(slot)];
    if (root.storage == Storage::kArena) root.storage = Storage::kFresh;
  }
}

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
    const bool kept = value != nullptr && (keep.contains(value->name()) || is_kept(plan_->slots[slot]));
    if (kept && last[root] >= 0 && last[root] < begin) last[root] = begin;
  }
  return last;
}

// Whether output 0 of `instruction` may use the memory of its input `input`, which dies at `position`.
bool PlanBuilder::may_take_over(std::size_t position, const Instruction& instruction, SlotId input,
                                const std::vector<std::int32_t>& last) const {
  const SlotId output = instruction.outputs[0], root = root_of(input), buffer = buffer_of_[root];
  const at::Tensor &given = plan_->slots[input].meta, &wanted = plan_->slots[output].meta;
  if (plan_->slots[root].storage != Storage::kArena || last[buffer] != static_cast<std::int32_t>(position))
    return false;
  if (given.scalar_type() != wanted.scalar_type() || given.sizes() != wanted.sizes() ||
      given.strides() != wanted.strides() || given.storage_offset() != 0 ||
      plan_->slots[root].bytes != plan_->slots[output].bytes) {
    return false;
  }
  // Another input in the same memory must be laid out alike: the kernel reads it while it writes.
  return std::all_of(instruction.inputs.begin(), instruction.inputs.end(), [&](SlotId other) {
    if (other == kAbsentSlot || buffer_of_[root_of(other)] != buffer) return true;
    const at::Tensor& meta = plan_->slots[other].meta;
    return meta.sizes() == given.sizes() && meta.strides() == given.strides() && meta.storage_offset() == 0;
  });
}

// Lets output 0 use the memory of an input that dies here, where the lowering allows it. An arena output
// shares the input's place; a fresh output makes the input fresh in its stead and becomes a view of it.
void PlanBuilder::take_over_memory(std::size_t position, const Instruction& instruction,
                                   std::vector<std::int32_t>& last) {
  const SlotId output = instruction.outputs[0];
  for (const std::size_t i : instruction.in_place) {
    const SlotId root = root_of(instruction.inputs[i]), buffer = buffer_of_[root];
    if (!may_take_over(position, instruction, instruction.inputs[i], last)) continue;
    if (plan_->slots[output].storage == Storage::kArena) {
      buffer_of_[output] = buffer;
      last[buffer] = std::max(last[buffer], last[output]);
      return;
    }
    const auto begin = static_cast<std::int32_t>(plan_->forward.instructions.size());
    const bool same_program =
        (writer_.at(root).position < begin) == (static_cast<std::int32_t>(position) < begin);
    if (plan_->slots[output].storage != Storage::kFresh || buffer != root || shared_.contains(root) ||
        !same_program)
      continue;
    plan_->slots[root].storage = Storage::kFresh;
    writer_.at(root).instruction->allocate.push_back(root);
    plan_->slots[output].storage = Storage::kView;
    plan_->slots[output].base = root;
    // The root can have other sizes: the input may be a reshaped view of it.
    const at::Tensor& meta = plan_->slots[output].meta;
    plan_->slots[output].view = [sizes = meta.sizes().vec(), strides = meta.strides().vec()](
                                    const at::Tensor& x) { return x.as_strided(sizes, strides); };
    plan_->slots[root].views.push_back(output);
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
    for (const SlotId slot : instructions[i]->outputs)
      writer_[slot] = {instructions[i], static_cast<std::int32_t>(i)};
    take_over_memory(i, *instructions[i], last);
    for (const SlotId slot : instructions[i]->outputs) {
      Slot& written = plan_->slots[slot];
      if (written.storage == Storage::kFresh) instructions[i]->allocate.push_back(slot);
      if (written.storage == Storage::kArena && buffer_of_[slot] != slot) shared_.insert(buffer_of_[slot]);
      if (written.storage != Storage::kArena || buffer_of_[slot] != slot) continue;
      buffer_index[slot] = buffers.size();
      const auto position = static_cast<std::int32_t>(i);
      buffers.push_back({written.bytes, position, position});
      owners.push_back(slot);
    }
  }
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    buffers[b].last = std::max(buffers[b].first, last[owners[b]]);
    if (plan_->slots[owners[b]].storage == Storage::kFresh) buffers[b].bytes = 0;  // made fresh by a takeover
  }
  plan_->arena_bytes = plan_memory(buffers);
  for (const Instruction* instruction : instructions) {
    for (const SlotId slot : instruction->outputs) {
      if (plan_->slots[slot].storage != Storage::kArena) continue;
      plan_->slots[slot].offset = buffers[buffer_index[buffer_of_[slot]]].offset;
    }
  }
}

// What the caller gets, it keeps, and layouts are small and may be read by any backward; all other memory
// that is not the arena's goes when nothing reads it any more.
void PlanBuilder::release_early() {
  const std::vector<Instruction*> instructions = timeline();
  const std::vector<std::int32_t> last = last_uses(instructions);
  std::vector<bool> result(plan_->slots.size(), false);
  for (const Program* program : {&plan_->forward, &plan_->backward}) {
    for (const SlotId slot : program->outputs) result[root_of(slot)] = true;
  }
  for (SlotId slot = 1; slot < plan_->slots.size(); ++slot) {
    const Storage storage = plan_->slots[slot].storage;
    const bool owns = storage == Storage::kFresh || storage == Storage::kGiven || storage == Storage::kHeld;
    if (!owns || plan_->slots[slot].layout || result[slot] || last[slot] < 0 ||
        last[slot] >= static_cast<std::int32_t>(instructions.size()))
      continue;
    instructions[static_cast<std::size_t>(last[slot])]->release.push_back(slot);
  }
  for (Instruction* instruction : instructions) {
    for (const SlotId slot : instruction->outputs) {
      if (plan_->slots[slot].storage == Storage::kGiven) instruction->given.push_back(slot);
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
      if (written[root] || seen[root] || storage == Storage::kConstant || storage == Storage::kAbsent)
        continue;
      seen[root] = true;
      plan_->saved.push_back(root);
      if (storage == Storage::kArena) plan_->saved_bytes += plan_->slots[root].bytes;
    }
  }
  find_kept(std::move(written), std::move(seen));
}

void PlanBuilder::find_kept(std::vector<bool> in_backward, std::vector<bool> seen) {
  const std::unordered_set<std::string> keep(request_.keep.begin(), request_.keep.end());
  plan_->kept = plan_->saved;
  for (SlotId slot = 1; slot < plan_->slots.size(); ++slot) {
    const Slot& known = plan_->slots[slot];
    const bool may_be_read =
        known.layout || (known.value != nullptr && keep.contains(known.value->name())) || is_kept(known);
    const SlotId root = root_of(slot);
    const Storage storage = plan_->slots[root].storage;
    if (!may_be_read || in_backward[root] || seen[root] || storage == Storage::kConstant ||
        storage == Storage::kAbsent)
      continue;
    seen[root] = true;
    plan_->kept.push_back(root);
  }
}

}  // namespace rekindle::session
