// Values whose sizes depend on data, and the nodes that read them: lowered when they run.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>

#include "session/lower/tensor_types.h"
#include "session/plan/plan_builder.h"
#include "session/run/deferred.h"
#include "src/graph/op_info.h"
#include "src/graph/torch_node.h"

namespace rekindle::session {
namespace {

bool is_read_for_shape(const graph::Value* value, const std::unordered_set<std::string>& keep) {
  return keep.contains(value->name()) || std::ranges::any_of(value->uses(), [](const graph::Use& use) {
           return graph::is_shape_only(*use.node, use.index);
         });
}

// Nothing but the dtype is known of it.
at::Tensor open_meta(const graph::Value* value) {
  const graph::DType dtype = value->type().dtype;
  const at::ScalarType type = dtype == graph::DType::kUndefined ? at::kFloat : scalar_type_of(dtype);
  return at::empty({0}, at::TensorOptions().dtype(type).device(at::kMeta));
}

}  // namespace

bool PlanBuilder::reads_open(const graph::Node& node) const {
  return std::ranges::any_of(node.inputs(),
                             [&](const graph::Value* input) { return plan_->slots[slot_of(input)].open; });
}

SlotId PlanBuilder::add_open(const graph::Value* value) {
  const SlotId slot = add_slot(Storage::kGiven, open_meta(value), value);
  plan_->slots[slot].open = true;
  define(value, slot);
  return slot;
}

// A result whose sizes are known when it is there: it then lies as it has to, or is copied.
SlotId PlanBuilder::claim_open(Program& program, SlotId result, const ResultLayout& layout) {
  const bool first = plan_->slots[result].storage == Storage::kGiven && claimed_.insert(result).second;
  if (first && layout.kind == ResultLayout::Kind::kAny) return result;
  Instruction settle;
  settle.inputs = {result};
  settle.outputs = {add_open(plan_->slots[result].value)};
  settle.kernel = [layout, first](const Args& args) {
    const at::Tensor& from = args.in(0);
    const Sizes strides = strides_of(layout, from.sizes(), from.strides())
                              .value_or(c10::TensorType::contiguousStridesOf(from.sizes()));
    if (first && from.strides() == strides) {
      args.out() = from.tensor_data();  // the frame's own handle stays its own
      return;
    }
    args.out() = at::empty_strided(from.sizes(), strides, from.options());
    each_once(args.out(), strides).copy_(each_once(from, strides));
  };
  claimed_.insert(settle.outputs[0]);
  program.instructions.push_back(std::move(settle));
  return program.instructions.back().outputs[0];
}

void PlanBuilder::defer(const graph::Node& node, Lower lower, Program& program) {
  Deferred deferred{
      .node = &node, .lower = lower, .recording = request_.record, .metas = {}, .delivered = {}, .sized = {}};
  Instruction instruction;
  instruction.node = &node;
  for (std::size_t i = 0; i < node.inputs().size(); ++i) {
    SlotId slot = slot_of(node.input(i));
    const bool for_shape = graph::is_shape_only(node, i), open = plan_->slots[slot].open;
    const auto layout = layouts_of_values_.find(node.input(i));
    if (for_shape && open && layout != layouts_of_values_.end()) slot = layout->second;
    const bool known = for_shape && !open && slot != kAbsentSlot;
    deferred.metas.push_back(known ? plan_->slots[slot].meta : at::Tensor());
    instruction.inputs.push_back(known ? kAbsentSlot : slot);
  }
  own_memory(instruction.inputs);  // a result may be a view
  const std::size_t tensors = node.outputs().size() - (graph::has_tape(node) ? 1 : 0);
  for (std::size_t i = 0; i < node.outputs().size(); ++i) {
    const graph::Value* value = node.output(i);
    deferred.delivered.push_back(request_.joint->graph->is_output(value));
    if (i < tensors) {
      instruction.outputs.push_back(add_open(value));
      if (is_read_for_shape(value, request_.keep_layouts)) deferred.sized.push_back(i);
    } else {
      instruction.outputs.push_back(
          add_slot(Storage::kHeld, at::empty({0}, at::TensorOptions(at::kByte).device(at::kMeta)), value));
      define(value, instruction.outputs.back());
    }
  }
  for (const std::size_t i : deferred.sized) {
    const SlotId slot = add_slot(Storage::kGiven, open_meta(node.output(i)), node.output(i));
    plan_->slots[slot].layout = true;
    layouts_of_values_[node.output(i)] = slot;
    instruction.outputs.push_back(slot);
  }
  instruction.gives_absent = graph::is_torch_gradient(node);
  instruction.takes_absent = takes_absent_deferred(node);
  instruction.kernel = [deferred = std::move(deferred)](const Args& args) { deferred.run(args); };
  program.instructions.push_back(std::move(instruction));
}

}  // namespace rekindle::session
