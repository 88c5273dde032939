#include "session/plan/plan_builder.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "session/lower/tensor_types.h"
#include "src/autodiff/rematerialize.h"
#include "src/graph/op_info.h"

namespace rekindle::session {
namespace {

// Results up to this size are computed while planning when every input is known.
constexpr std::size_t kMaxFoldedBytes = 16 << 20;
// Values up to this size are kept for the backward rather than computed again: an instruction costs more.
constexpr std::size_t kMaxKeptBytes = 256 << 10;

std::string where(const graph::Node& node) {
  std::string text = "node '" + (node.outputs().empty() ? std::string() : node.output()->name()) + "' (" +
                     (node.domain().empty() ? "" : node.domain() + "::") + node.op_type() + ")";
  return node.source().empty() ? text : text + " from " + node.source();
}

}  // namespace

PlanBuilder::PlanBuilder(const PlanRequest& request) : request_(request), plan_(std::make_shared<Plan>()) {
  plan_->joint = request.joint;
  plan_->present = request.present;
  plan_->device = request.device;
  plan_->slots.emplace_back();  // kAbsentSlot
}

std::shared_ptr<const Plan> PlanBuilder::build() {
  const auto& joint = *request_.joint;
  const auto& outputs = joint.graph->outputs();
  const auto split = outputs.begin() + static_cast<std::ptrdiff_t>(joint.forward_outputs);
  partition_ = autodiff::partition(joint);
  add_inputs();
  lower_nodes(partition_.forward, plan_->forward);
  claim_results(plan_->forward, {outputs.begin(), split}, output_layouts());
  if (request_.record) {
    add_cotangents();
    lower_nodes(partition_.backward, plan_->backward);
    claim_results(plan_->backward, {split, outputs.end()}, gradient_layouts());
  }
  prune();
  place();
  find_saved();
  find_deliveries();
  find_absent();
  release_early();
  return plan_;
}

SlotId PlanBuilder::add_slot(Storage storage, at::Tensor meta, const graph::Value* value) {
  Slot slot;
  slot.storage = storage;
  slot.bytes = static_cast<std::size_t>(meta.numel()) * meta.element_size();
  slot.meta = std::move(meta);
  slot.value = value;
  plan_->slots.push_back(std::move(slot));
  return static_cast<SlotId>(plan_->slots.size() - 1);
}

SlotId PlanBuilder::slot_of(const graph::Value* value) const {
  return value == nullptr ? kAbsentSlot : slots_of_values_.at(value);
}

SlotId PlanBuilder::root_of(SlotId slot) const { return plan_->root_of(slot); }

void PlanBuilder::define(const graph::Value* value, SlotId slot) {
  if (value != nullptr) slots_of_values_[value] = slot;
}

void PlanBuilder::define_constant(const graph::Value* value, at::Tensor tensor) {
  const SlotId slot = add_slot(Storage::kConstant, meta_of(tensor), value);
  plan_->slots[slot].constant = std::move(tensor);
  define(value, slot);
}

void PlanBuilder::add_inputs() {
  const auto& joint = *request_.joint;
  TORCH_CHECK(request_.input_count == joint.forward_inputs, "the graph takes ", joint.forward_inputs,
              " inputs, but the call has ", request_.input_count);
  for (std::size_t i = 0; i < joint.forward_inputs; ++i) {
    const graph::Value* value = joint.graph->inputs()[i];
    const at::Tensor& tensor = request_.inputs[i];
    TORCH_CHECK(tensor.defined(), "input '", value->name(), "' is missing");
    plan_->input_metas.push_back(meta_of(tensor));
    const SlotId slot = add_slot(Storage::kInput, plan_->input_metas.back(), value);
    define(value, slot);
    plan_->forward.inputs.push_back(slot);
  }
}

void PlanBuilder::add_cotangents() {
  const auto& joint = *request_.joint;
  for (std::size_t i = 0; i < joint.cotangent_of.size(); ++i) {
    const graph::Value* value = joint.graph->inputs()[joint.forward_inputs + i];
    const SlotId output = slot_of(joint.graph->outputs()[joint.cotangent_of[i]]);
    const at::Tensor& like = plan_->slots[output].meta;
    const SlotId slot = add_slot(Storage::kInput, at::empty(like.sizes(), like.options()), value);
    plan_->slots[slot].open = plan_->slots[output].open;
    define(value, slot);
    plan_->backward.inputs.push_back(slot);
  }
}

void PlanBuilder::lower_nodes(const std::vector<const graph::Node*>& nodes, Program& program) {
  for (const graph::Node* node : nodes) {
    try {
      lower_node(*node, program);
    } catch (c10::Error& error) {
      error.add_context("while planning " + where(*node));
      throw;
    }
  }
}

void PlanBuilder::lower_node(const graph::Node& node, Program& program) {
  const Lower lower = find_lowering(node.domain(), node.op_type());
  TORCH_CHECK_NOT_IMPLEMENTED(lower != nullptr, "the session has no lowering for ", where(node));
  if (keep_instead(node)) return;
  if (reads_open(node)) return defer(node, lower, program);
  std::vector<SlotId> inputs;
  std::vector<at::Tensor> metas, constants;
  for (std::size_t i = 0; i < node.inputs().size(); ++i) {
    const Slot& slot = plan_->slots[slot_of(node.input(i))];
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
  Lowering lowering;
  try {
    lowering = lower(context);
  } catch (const NeedsData&) {
    if (!request_.defers) throw;
    return defer(node, lower, program);
  }
  if (!fold(node, lowering, inputs)) add_instruction(node, std::move(lowering), std::move(inputs), program);
}

// Whether one node alone reads the memory of a value that the graph has computed, itself or through views.
bool PlanBuilder::is_exclusive(const graph::Value* value) const {
  for (SlotId slot = slot_of(value);; slot = plan_->slots[slot].base) {
    const Slot& known = plan_->slots[slot];
    if (known.value == nullptr || known.value->uses().size() != 1 || is_kept(known) ||
        request_.joint->graph->is_output(known.value))
      return false;
    if (known.storage != Storage::kView)
      return known.storage == Storage::kArena || known.storage == Storage::kFresh ||
             known.storage == Storage::kGiven;
  }
}

// Whether a backward would compute the slot's value again, but for its size.
bool PlanBuilder::is_kept(const Slot& slot) const {
  return slot.value != nullptr && slot.bytes <= kMaxKeptBytes &&
         request_.recomputed.contains(slot.value->name());
}

// Reads the forward's value where the backward pass would compute a small one again.
bool PlanBuilder::keep_instead(const graph::Node& node) {
  const graph::Value* value = autodiff::recomputed_value(*request_.joint->graph, node);
  if (value == nullptr || !slots_of_values_.contains(value)) return false;
  const SlotId slot = slot_of(value);
  if (!is_kept(plan_->slots[slot])) return false;
  define(node.output(), slot);
  return true;
}

// Makes constants of the node's outputs when they are known now.
bool PlanBuilder::fold(const graph::Node& node, const Lowering& lowering, const std::vector<SlotId>& inputs) {
  if (!lowering.constants.empty()) {
    for (std::size_t i = 0; i < lowering.constants.size(); ++i)
      define_constant(node.output(i), lowering.constants[i]);
    return true;
  }
  if (graph::is_random(node) || output_bytes(lowering) > kMaxFoldedBytes) return false;
  std::vector<at::Tensor> known;
  for (const SlotId input : inputs) {
    const Slot& slot = plan_->slots[input];
    if (slot.storage != Storage::kConstant && slot.storage != Storage::kAbsent) return false;
    known.push_back(slot.constant);
  }
  const std::vector<at::Tensor> results = run_once(lowering, known);
  for (std::size_t i = 0; i < node.outputs().size(); ++i) define_constant(node.output(i), results[i]);
  return true;
}

void PlanBuilder::add_instruction(const graph::Node& node, Lowering lowering, std::vector<SlotId> inputs,
                                  Program& program) {
  if (!lowering.views.empty()) {
    bool viewable = true;
    std::vector<at::Tensor> metas;
    for (const View& view : lowering.views) {
      metas.push_back(view(plan_->slots[inputs[0]].meta));
      viewable = viewable && metas.back().defined();
    }
    if (viewable) {
      TORCH_INTERNAL_ASSERT(graph::is_view(node), node.op_type(), " has no kView in src/graph/op_info.cc");
      for (std::size_t i = 0; i < lowering.views.size(); ++i) {
        const SlotId slot = add_slot(Storage::kView, metas[i], node.output(i));
        plan_->slots[slot].base = inputs[0];
        plan_->slots[slot].view = std::move(lowering.views[i]);
        plan_->slots[inputs[0]].views.push_back(slot);
        define(node.output(i), slot);
      }
      return;
    }
  }
  TORCH_CHECK(lowering.kernel, "the op has no kernel for this input layout");
  const std::size_t outputs = lowering.outputs.size() + lowering.held;
  TORCH_CHECK(outputs >= node.outputs().size(), "the lowering defines ", outputs,
              " outputs, but the node has ", node.outputs().size());
  Instruction instruction;
  instruction.node = &node;
  instruction.kernel = std::move(lowering.kernel);
  instruction.inputs = std::move(inputs);
  if (lowering.keeps_inputs) own_memory(instruction.inputs);
  for (std::size_t i = 0; i < outputs; ++i) {
    const graph::Value* value = i < node.outputs().size() ? node.output(i) : nullptr;
    instruction.outputs.push_back(add_output(lowering, i, value));
    define(value, instruction.outputs.back());
  }
  for (const Layout& layout : lowering.scratch) {
    instruction.outputs.push_back(add_slot(Storage::kArena, empty_of(layout, at::kMeta), nullptr));
  }
  instruction.in_place = std::move(lowering.in_place);
  instruction.gives_absent = lowering.gives_absent;
  instruction.takes_absent = lowering.takes_absent;
  program.instructions.push_back(std::move(instruction));
}

SlotId PlanBuilder::add_output(const Lowering& lowering, std::size_t i, const graph::Value* value) {
  if (i >= lowering.outputs.size())
    return add_slot(Storage::kHeld, empty_of({at::kByte, {0}, {}}, at::kMeta), value);
  return add_slot(lowering.gives ? Storage::kGiven : Storage::kArena,
                  empty_of(lowering.outputs[i], at::kMeta), value);
}

// Drops, last first, instructions that neither draw random numbers nor write something read later.
void PlanBuilder::prune() {
  std::vector<bool> read(plan_->slots.size(), false);
  for (const Program* program : {&plan_->forward, &plan_->backward}) {
    for (const SlotId slot : program->outputs) read[root_of(slot)] = true;
  }
  for (Program* program : {&plan_->backward, &plan_->forward}) {
    auto& instructions = program->instructions;
    std::vector<Instruction> kept;
    for (auto it = instructions.rbegin(); it != instructions.rend(); ++it) {
      const bool random = it->node != nullptr && graph::is_random(*it->node);
      const bool needed =
          std::any_of(it->outputs.begin(), it->outputs.end(), [&](SlotId slot) { return read[slot]; });
      if (!needed && !random) continue;
      for (const SlotId slot : it->inputs) read[root_of(slot)] = true;
      kept.push_back(std::move(*it));
    }
    instructions.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
  }
}

// What depends on a cotangent is linear in all cotangents that it depends on: absent ones make it absent.
void PlanBuilder::find_absent() {
  auto& instructions = plan_->backward.instructions;
  if (std::none_of(instructions.begin(), instructions.end(),
                   [](const auto& each) { return each.gives_absent; }))
    return;
  std::unordered_set<SlotId> linear;  // roots
  for (const SlotId slot : plan_->backward.inputs) linear.insert(root_of(slot));
  for (Instruction& instruction : instructions) {
    for (const SlotId slot : instruction.inputs) {
      if (linear.contains(root_of(slot))) instruction.linear_in.push_back(root_of(slot));
    }
    if (instruction.linear_in.empty()) continue;
    for (const SlotId slot : instruction.outputs) linear.insert(root_of(slot));
  }
}

Result<std::shared_ptr<const Plan>> make_plan(const PlanRequest& request) {
  try {
    return PlanBuilder(request).build();
  } catch (const c10::NotImplementedError& error) {
    return unsupported(error.what_without_backtrace());
  } catch (const c10::Error& error) {
    return invalid_argument(error.what_without_backtrace());
  }
}

}  // namespace rekindle::session
