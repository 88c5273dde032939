#include "session/plan/plan.h"

#include <ATen/ops/empty.h>

#include "session/lower/tensor_types.h"
#include "session/run/fused_kernel.h"

namespace rekindle::session {
namespace {

const char* storage_name(Storage storage) {
  switch (storage) {
    case Storage::kAbsent:
      return "absent";
    case Storage::kInput:
      return "input";
    case Storage::kConstant:
      return "constant";
    case Storage::kArena:
      return "arena";
    case Storage::kView:
      return "view";
    case Storage::kFresh:
      return "fresh";
    case Storage::kGiven:
      return "given";
    case Storage::kHeld:
      return "held";
  }
  return "?";
}

std::string slot_text(const Plan& plan, SlotId id) {
  const Slot& slot = plan.slots[id];
  if (slot.storage == Storage::kAbsent) return "_";
  std::string text = c10::str("%", slot.value == nullptr ? c10::str("scratch", id) : slot.value->name(), ":",
                              storage_name(slot.storage));
  if (slot.storage == Storage::kArena) text += c10::str("@", slot.offset, "+", slot.bytes);
  return text + c10::str(slot.meta.sizes());
}

void describe_program(const Plan& plan, const char* title, const Program& program, std::string& text) {
  text += std::string(title) + ": " + std::to_string(program.instructions.size()) + " instructions\n";
  for (const Instruction& instruction : program.instructions) {
    text += "  ";
    for (const SlotId slot : instruction.outputs) text += slot_text(plan, slot) + " ";
    text += "= " + ops_of(instruction);
    for (const SlotId slot : instruction.inputs) text.append(" ").append(slot_text(plan, slot));
    text += "\n";
  }
}

}  // namespace

std::string ops_of(const Instruction& instruction) {
  if (instruction.fused != nullptr) return instruction.fused->name();
  return instruction.node == nullptr ? "Copy" : instruction.node->op_type();
}

SlotId Programs::add(Storage storage, at::Tensor meta, const graph::Value* value) {
  Slot slot;
  slot.storage = storage;
  slot.bytes = static_cast<std::size_t>(meta.numel()) * meta.element_size();
  slot.meta = std::move(meta);
  slot.value = value;
  slots.push_back(std::move(slot));
  return static_cast<SlotId>(slots.size() - 1);
}

SlotId Programs::add_open(const graph::Value* value) {
  const graph::DType dtype = value->type().dtype;
  const at::ScalarType type = dtype == graph::DType::kUndefined ? at::kFloat : scalar_type_of(dtype);
  const SlotId slot =
      add(Storage::kGiven, at::empty({0}, at::TensorOptions().dtype(type).device(at::kMeta)), value);
  slots[slot].open = true;
  return slot;
}

std::vector<Instruction*> Programs::timeline() {
  std::vector<Instruction*> all;
  for (Program* program : {&forward, &backward}) {
    for (Instruction& instruction : program->instructions) all.push_back(&instruction);
  }
  return all;
}

bool KeptValues::is_kept_small(const Slot& slot) const {
  return slot.value != nullptr && slot.bytes <= kMaxKeptBytes && recomputed.contains(slot.value->name());
}

bool Plan::fits(std::span<const at::Tensor> inputs, at::Device on) const {
  if (inputs.size() != input_metas.size() || on != device) return false;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& tensor = inputs[i];
    const at::Tensor& meta = input_metas[i];
    if (tensor.scalar_type() != meta.scalar_type() || tensor.sizes() != meta.sizes() ||
        tensor.strides() != meta.strides()) {
      return false;
    }
  }
  return true;
}

std::string Plan::describe() const {
  std::string text =
      "arena " + std::to_string(arena_bytes) + " bytes, saved " + std::to_string(saved_bytes) + " bytes\n";
  describe_program(*this, "forward", forward, text);
  describe_program(*this, "backward", backward, text);
  return text;
}

}  // namespace rekindle::session
