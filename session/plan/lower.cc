// The stage lower_graph(): from nodes to slots and instructions.
#include <ATen/ops/empty.h>

#include <algorithm>

#include "session/lower/pointwise_steps.h"
#include "session/lower/tensor_types.h"
#include "session/plan/graph_lowering.h"
#include "src/autodiff/partition.h"
#include "src/autodiff/rematerialize.h"
#include "src/graph/op_info.h"

namespace rekindle::session {
namespace {

// Results up to this size are computed while planning when every input is known.
constexpr std::size_t kMaxFoldedBytes = 16 << 20;
// The same of masks, for an accelerator: attention that knows its mask may not need it (attention_mask.h).
constexpr std::size_t kMaxFoldedMask = 128 << 20;

std::string where(const graph::Node& node) {
  std::string text = "node '" + (node.outputs().empty() ? std::string() : node.output()->name()) + "' (" +
                     (node.domain().empty() ? "" : node.domain() + "::") + node.op_type() + ")";
  return node.source().empty() ? text : text + " from " + node.source();
}

}  // namespace

Lowered lower_graph(const PlanRequest& request) { return GraphLowering(request).run(); }

Lowered GraphLowering::run() {
  const autodiff::Partition partition = autodiff::partition(*request_.joint);
  add_inputs();
  lower_nodes(partition.forward, programs_.forward);
  if (request_.record) {
    add_cotangents();
    lower_nodes(partition.backward, programs_.backward);
  }
  return {std::move(programs_), std::move(slots_of_values_)};
}

void GraphLowering::define(const graph::Value* value, SlotId slot) {
  if (value != nullptr) slots_of_values_[value] = slot;
}

void GraphLowering::define_constant(const graph::Value* value, at::Tensor tensor) {
  const SlotId slot = programs_.add(Storage::kConstant, meta_of(tensor), value);
  programs_.slots[slot].constant = std::move(tensor);
  define(value, slot);
}

void GraphLowering::add_inputs() {
  const auto& joint = *request_.joint;
  TORCH_CHECK(request_.inputs.size() == joint.forward_inputs, "the graph takes ", joint.forward_inputs,
              " inputs, but the call has ", request_.inputs.size());
  for (std::size_t i = 0; i < joint.forward_inputs; ++i) {
    const graph::Value* value = joint.graph->inputs()[i];
    TORCH_CHECK(request_.inputs[i].defined(), "input '", value->name(), "' is missing");
    const SlotId slot = programs_.add(Storage::kInput, meta_of(request_.inputs[i]), value);
    define(value, slot);
    programs_.forward.inputs.push_back(slot);
  }
}

void GraphLowering::add_cotangents() {
  const auto& joint = *request_.joint;
  for (std::size_t i = 0; i < joint.cotangent_of.size(); ++i) {
    const graph::Value* value = joint.graph->inputs()[joint.forward_inputs + i];
    const Slot& output = slot_at(joint.graph->outputs()[joint.cotangent_of[i]]);
    const bool open = output.open;
    const SlotId slot =
        programs_.add(Storage::kInput, at::empty(output.meta.sizes(), output.meta.options()), value);
    programs_.slots[slot].open = open;
    define(value, slot);
    programs_.backward.inputs.push_back(slot);
  }
}

void GraphLowering::lower_nodes(const std::vector<const graph::Node*>& nodes, Program& program) {
  for (const graph::Node* node : nodes) {
    try {
      lower_node(*node, program);
    } catch (c10::Error& error) {
      error.add_context("while planning " + where(*node));
      throw;
    }
  }
}

void GraphLowering::lower_node(const graph::Node& node, Program& program) {
  const Lower lower = find_lowering(node.domain(), node.op_type());
  TORCH_CHECK_NOT_IMPLEMENTED(lower != nullptr, "the session has no lowering for ", where(node));
  if (keep_instead(node)) return;
  if (reads_open(node)) return defer(node, lower, program);
  std::vector<SlotId> inputs;
  std::vector<at::Tensor> metas, constants;
  for (std::size_t i = 0; i < node.inputs().size(); ++i) {
    const Slot& slot = slot_at(node.input(i));
    metas.push_back(slot.meta);
    constants.push_back(slot.constant);
    inputs.push_back(graph::is_shape_only(node, i) ? kAbsentSlot : slot_of(node.input(i)));
  }
  LowerContext context(node, std::move(metas), std::move(constants), request_.record);
  std::vector<bool> exclusive, delivered;
  for (const graph::Value* input : node.inputs()) exclusive.push_back(is_exclusive(input));
  for (const graph::Value* output : node.outputs())
    delivered.push_back(request_.joint->graph->is_output(output));
  context.set_owners(std::move(exclusive), std::move(delivered));
  context.set_device(request_.device);
  Lowering lowering;
  try {
    lowering = lower(context);
  } catch (const NeedsData&) {
    if (!request_.defers) throw;
    return defer(node, lower, program);
  }
  if (request_.fuse) lowering.pointwise = pointwise_steps(context, lowering);
  if (fold(node, lowering, inputs) || (!inputs.empty() && add_views(node, lowering, inputs[0]))) return;
  add_instruction(node, std::move(lowering), std::move(inputs), program);
}

// Whether one node alone reads the memory of a value that the graph has computed, itself or through views.
bool GraphLowering::is_exclusive(const graph::Value* value) const {
  for (SlotId slot = slot_of(value);; slot = programs_.slots[slot].base) {
    const Slot& known = programs_.slots[slot];
    if (known.value == nullptr || known.value->uses().size() != 1 || request_.kept->is_kept_small(known) ||
        request_.joint->graph->is_output(known.value))
      return false;
    if (known.storage != Storage::kView)
      return known.storage == Storage::kArena || known.storage == Storage::kFresh ||
             known.storage == Storage::kGiven;
  }
}

// Reads the forward's value where the backward pass would compute a small one again.
bool GraphLowering::keep_instead(const graph::Node& node) {
  const graph::Value* value = autodiff::recomputed_value(*request_.joint->graph, node);
  if (value == nullptr || !slots_of_values_.contains(value)) return false;
  const SlotId slot = slot_of(value);
  if (!request_.kept->is_kept_small(programs_.slots[slot])) return false;
  define(node.output(), slot);
  return true;
}

// Makes constants of the node's outputs when they are known now.
bool GraphLowering::fold(const graph::Node& node, const Lowering& lowering,
                         const std::vector<SlotId>& inputs) {
  if (!lowering.constants.empty()) {
    for (std::size_t i = 0; i < lowering.constants.size(); ++i)
      define_constant(node.output(i), lowering.constants[i]);
    return true;
  }
  if (graph::is_random(node)) return false;
  const bool is_mask =
      !request_.device.is_cpu() && lowering.outputs.size() == 1 && lowering.outputs[0].dtype == at::kBool;
  if (output_bytes(lowering) > (is_mask ? kMaxFoldedMask : kMaxFoldedBytes)) return false;
  std::vector<at::Tensor> known;
  for (const SlotId input : inputs) {
    const Slot& slot = programs_.slots[input];
    if (slot.storage != Storage::kConstant && slot.storage != Storage::kAbsent) return false;
    known.push_back(slot.constant);
  }
  const std::vector<at::Tensor> results = run_once(lowering, known);
  for (std::size_t i = 0; i < node.outputs().size(); ++i) define_constant(node.output(i), results[i]);
  return true;
}

// Makes views of `base` of the node's outputs where its layout allows that.
bool GraphLowering::add_views(const graph::Node& node, Lowering& lowering, SlotId base) {
  std::vector<at::Tensor> metas;
  for (const View& view : lowering.views) {
    metas.push_back(view(programs_.slots[base].meta));
    if (!metas.back().defined()) return false;
  }
  if (metas.empty()) return false;
  TORCH_INTERNAL_ASSERT(graph::is_view(node), node.op_type(), " has no kView in src/graph/op_info.cc");
  for (std::size_t i = 0; i < metas.size(); ++i) {
    const SlotId slot = programs_.add(Storage::kView, metas[i], node.output(i));
    programs_.slots[slot].base = base;
    programs_.slots[slot].view = std::move(lowering.views[i]);
    programs_.slots[base].views.push_back(slot);
    define(node.output(i), slot);
  }
  return true;
}

void GraphLowering::add_instruction(const graph::Node& node, Lowering lowering, std::vector<SlotId> inputs,
                                    Program& program) {
  TORCH_CHECK(lowering.kernel, "the op has no kernel for this input layout");
  const std::size_t outputs = lowering.outputs.size() + lowering.held;
  TORCH_CHECK(outputs >= node.outputs().size(), "the lowering defines ", outputs,
              " outputs, but the node has ", node.outputs().size());
  Instruction instruction;
  instruction.node = &node;
  instruction.kernel = std::move(lowering.kernel);
  instruction.again = std::move(lowering.again);
  instruction.pointwise = std::move(lowering.pointwise);
  instruction.inputs = std::move(inputs);
  for (const std::size_t i : lowering.unread) instruction.inputs.at(i) = kAbsentSlot;
  if (lowering.keeps_inputs) own_memory(instruction.inputs);
  for (std::size_t i = 0; i < outputs; ++i) {
    const graph::Value* value = i < node.outputs().size() ? node.output(i) : nullptr;
    instruction.outputs.push_back(add_output(lowering, i, value));
    define(value, instruction.outputs.back());
  }
  for (const Layout& layout : lowering.scratch) {
    instruction.outputs.push_back(programs_.add(Storage::kArena, empty_of(layout, at::kMeta), nullptr));
  }
  instruction.in_place = std::move(lowering.in_place);
  instruction.absence.may_give = lowering.gives_absent;
  instruction.absence.takes = lowering.takes_absent;
  instruction.absence.runs = lowering.runs_absent;
  program.instructions.push_back(std::move(instruction));
}

SlotId GraphLowering::add_output(const Lowering& lowering, std::size_t i, const graph::Value* value) {
  if (i >= lowering.outputs.size())
    return programs_.add(Storage::kHeld, empty_of({at::kByte, {0}, {}}, at::kMeta), value);
  return programs_.add(lowering.gives ? Storage::kGiven : Storage::kArena,
                       empty_of(lowering.outputs[i], at::kMeta), value);
}

// The arena is reused while a kernel still holds on to these.
void GraphLowering::own_memory(const std::vector<SlotId>& slots) {
  for (const SlotId slot : slots) {
    Slot& root = programs_.slots[programs_.root_of(slot)];
    if (root.storage == Storage::kArena) root.storage = Storage::kFresh;
  }
}

}  // namespace rekindle::session
