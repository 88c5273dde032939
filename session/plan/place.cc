// The stage place_slots(): in-place takeovers, and offsets in the arena.
#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "device/memory.h"
#include "session/plan/memory_planner.h"
#include "session/plan/stages.h"

namespace rekindle::session {
namespace {

class Placement {
 public:
  Placement(Programs& programs, const KeptValues& kept);
  // Returns the bytes of the arena.
  std::size_t run(std::size_t alignment);

 private:
  struct Writer {
    Instruction* instruction = nullptr;
    std::int32_t position = 0;  // in the timeline
  };

  bool may_take_over(std::size_t position, const Instruction& instruction, SlotId input) const;
  void take_over_memory(std::size_t position, const Instruction& instruction);
  void take_over_result(SlotId root, SlotId output);
  void add_outputs(std::size_t position, Instruction& instruction);
  void set_offsets();

  Programs& programs_;
  const std::vector<Instruction*> instructions_;
  std::vector<std::int32_t> last_;     // use, per slot
  std::vector<SlotId> buffer_of_;      // per slot: the root whose arena place it shares
  std::unordered_set<SlotId> shared_;  // roots whose arena place another slot shares
  std::unordered_map<SlotId, Writer> writer_;
  std::vector<Buffer> buffers_;
  std::vector<SlotId> owners_;  // per buffer
};

Placement::Placement(Programs& programs, const KeptValues& kept)
    : programs_(programs),
      instructions_(programs.timeline()),
      last_(last_uses(programs, kept)),
      buffer_of_(programs.slots.size()) {
  std::iota(buffer_of_.begin(), buffer_of_.end(), 0);
}

std::size_t Placement::run(std::size_t alignment) {
  for (std::size_t i = 0; i < instructions_.size(); ++i) {
    for (const SlotId slot : instructions_[i]->outputs)
      writer_[slot] = {instructions_[i], static_cast<std::int32_t>(i)};
    take_over_memory(i, *instructions_[i]);
    add_outputs(i, *instructions_[i]);
  }
  for (std::size_t b = 0; b < buffers_.size(); ++b) {
    buffers_[b].last = std::max(buffers_[b].first, last_[owners_[b]]);
    if (programs_.slots[owners_[b]].storage == Storage::kFresh)
      buffers_[b].bytes = 0;  // made fresh by a takeover
  }
  const std::size_t bytes = plan_memory(buffers_, alignment);
  set_offsets();
  return bytes;
}

void Placement::add_outputs(std::size_t position, Instruction& instruction) {
  for (const SlotId slot : instruction.outputs) {
    const Slot& written = programs_.slots[slot];
    if (written.storage == Storage::kFresh) instruction.allocate.push_back(slot);
    if (written.storage != Storage::kArena) continue;
    if (buffer_of_[slot] != slot) {
      shared_.insert(buffer_of_[slot]);
      continue;
    }
    const auto at = static_cast<std::int32_t>(position);
    buffers_.push_back({written.bytes, at, at});
    owners_.push_back(slot);
  }
}

void Placement::set_offsets() {
  std::vector<std::size_t> offset(programs_.slots.size());
  for (std::size_t b = 0; b < buffers_.size(); ++b) offset[owners_[b]] = buffers_[b].offset;
  for (const Instruction* instruction : instructions_) {
    for (const SlotId slot : instruction->outputs) {
      Slot& written = programs_.slots[slot];
      if (written.storage == Storage::kArena) written.offset = offset[buffer_of_[slot]];
    }
  }
}

// Whether output 0 of `instruction` may use the memory of its input `input`, which dies at `position`.
bool Placement::may_take_over(std::size_t position, const Instruction& instruction, SlotId input) const {
  const SlotId output = instruction.outputs[0], root = programs_.root_of(input), buffer = buffer_of_[root];
  const at::Tensor &given = programs_.slots[input].meta, &wanted = programs_.slots[output].meta;
  if (programs_.slots[root].storage != Storage::kArena ||
      last_[buffer] != static_cast<std::int32_t>(position))
    return false;
  if (given.scalar_type() != wanted.scalar_type() || given.sizes() != wanted.sizes() ||
      given.strides() != wanted.strides() || given.storage_offset() != 0 ||
      programs_.slots[root].bytes != programs_.slots[output].bytes) {
    return false;
  }
  // Another input in the same memory must be laid out alike: the kernel reads it while it writes.
  return std::all_of(instruction.inputs.begin(), instruction.inputs.end(), [&](SlotId other) {
    if (other == kAbsentSlot || buffer_of_[programs_.root_of(other)] != buffer) return true;
    const at::Tensor& meta = programs_.slots[other].meta;
    return meta.sizes() == given.sizes() && meta.strides() == given.strides() && meta.storage_offset() == 0;
  });
}

// Lets output 0 use the memory of an input that dies here, where the lowering allows it. An arena output
// shares the input's place; for a fresh one, see take_over_result.
void Placement::take_over_memory(std::size_t position, const Instruction& instruction) {
  const SlotId output = instruction.outputs[0];
  for (const std::size_t i : instruction.in_place) {
    if (!may_take_over(position, instruction, instruction.inputs[i])) continue;
    const SlotId root = programs_.root_of(instruction.inputs[i]), buffer = buffer_of_[root];
    if (programs_.slots[output].storage == Storage::kArena) {
      buffer_of_[output] = buffer;
      last_[buffer] = std::max(last_[buffer], last_[output]);
      return;
    }
    const auto begin = static_cast<std::int32_t>(programs_.forward.instructions.size());
    const bool same_program =
        (writer_.at(root).position < begin) == (static_cast<std::int32_t>(position) < begin);
    if (programs_.slots[output].storage != Storage::kFresh || buffer != root || shared_.contains(root) ||
        !same_program)
      continue;
    return take_over_result(root, output);
  }
}

// Makes the input fresh in the result's stead, and the result a view of it.
void Placement::take_over_result(SlotId root, SlotId output) {
  programs_.slots[root].storage = Storage::kFresh;
  writer_.at(root).instruction->allocate.push_back(root);
  programs_.slots[output].storage = Storage::kView;
  programs_.slots[output].base = root;
  // The root can have other sizes: the input may be a reshaped view of it.
  const at::Tensor& meta = programs_.slots[output].meta;
  programs_.slots[output].view = [sizes = meta.sizes().vec(), strides = meta.strides().vec()](
                                     const at::Tensor& x) { return x.as_strided(sizes, strides); };
  programs_.slots[root].views.push_back(output);
  programs_.slots[root].taken_by = programs_.slots[output].value;
}

}  // namespace

Placed place_slots(const PlanRequest& request, Claimed claimed) {
  const std::size_t bytes =
      Placement(claimed.programs, *request.kept).run(device::alignment_of(request.device));
  return {std::move(claimed.programs), bytes};
}

}  // namespace rekindle::session
