// Values whose sizes depend on data, and the nodes that read them: lowered when they run.
#include <ATen/ops/empty.h>

#include <algorithm>

#include "session/plan/graph_lowering.h"
#include "session/run/deferred.h"
#include "src/graph/op_info.h"
#include "src/graph/torch_node.h"

namespace rekindle::session {
namespace {

bool is_read_for_shape(const graph::Value* value, const std::unordered_set<std::string>& layouts) {
  return layouts.contains(value->name()) || std::ranges::any_of(value->uses(), [](const graph::Use& use) {
           return graph::is_shape_only(*use.node, use.index);
         });
}

}  // namespace

bool GraphLowering::reads_open(const graph::Node& node) const {
  return std::ranges::any_of(node.inputs(), [&](const graph::Value* input) { return slot_at(input).open; });
}

// The slot that the node reads; absent where it reads a layout only that is known already: `meta`.
SlotId GraphLowering::input_of_deferred(const graph::Node& node, std::size_t i, at::Tensor& meta) const {
  const SlotId slot = slot_of(node.input(i));
  if (slot == kAbsentSlot || !graph::is_shape_only(node, i)) return slot;
  if (!programs_.slots[slot].open) {
    meta = programs_.slots[slot].meta;
    return kAbsentSlot;
  }
  const auto layout = layouts_of_values_.find(node.input(i));
  return layout == layouts_of_values_.end() ? slot : layout->second;
}

void GraphLowering::defer(const graph::Node& node, Lower lower, Program& program) {
  Deferred deferred;
  deferred.node = &node;
  deferred.lower = lower;
  deferred.recording = request_.record;
  deferred.device = request_.device;
  Instruction instruction;
  instruction.node = &node;
  for (std::size_t i = 0; i < node.inputs().size(); ++i) {
    instruction.inputs.push_back(input_of_deferred(node, i, deferred.metas.emplace_back()));
    deferred.constants.push_back(slot_at(node.input(i)).constant);
  }
  own_memory(instruction.inputs);  // a result may be a view
  const std::size_t tensors = node.outputs().size() - (graph::has_tape(node) ? 1 : 0);
  for (std::size_t i = 0; i < node.outputs().size(); ++i) {
    const graph::Value* value = node.output(i);
    deferred.delivered.push_back(request_.joint->graph->is_output(value));
    if (i < tensors && is_read_for_shape(value, request_.kept->layouts)) deferred.sized.push_back(i);
    instruction.outputs.push_back(
        i < tensors ? programs_.add_open(value)
                    : programs_.add(Storage::kHeld,
                                    at::empty({0}, at::TensorOptions(at::kByte).device(at::kMeta)), value));
    define(value, instruction.outputs.back());
  }
  for (const std::size_t i : deferred.sized) {
    const SlotId slot = programs_.add_open(node.output(i));
    programs_.slots[slot].open = false;
    programs_.slots[slot].layout = true;
    layouts_of_values_[node.output(i)] = slot;
    instruction.outputs.push_back(slot);
  }
  instruction.absence.may_give = graph::is_torch_gradient(node);
  instruction.absence.takes = takes_absent_deferred(node);
  instruction.absence.runs = graph::is_host_gradient(node);
  instruction.kernel = [deferred = std::move(deferred)](const Args& args) { deferred.run(args); };
  program.instructions.push_back(std::move(instruction));
}

}  // namespace rekindle::session
