// The stage claim_results(): results get memory of their own, and what nobody reads goes.
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <iterator>
#include <unordered_set>

#include "session/plan/stages.h"
#include "src/graph/op_info.h"

namespace rekindle::session {
namespace {

class Claims {
 public:
  explicit Claims(Lowered& lowered) : programs_(lowered.programs), slot_of_(lowered.slot_of) {}

  // One layout for each result.
  void add(Program& program, const std::vector<const graph::Value*>& results,
           const std::vector<ResultLayout>& layouts);

 private:
  bool is_own(const std::unordered_set<SlotId>& written, SlotId result, const std::optional<Sizes>& strides);
  SlotId copied(Program& program, SlotId result, const Sizes& strides);
  SlotId settled(Program& program, SlotId result, const ResultLayout& layout);

  Programs& programs_;
  const std::unordered_map<const graph::Value*, SlotId>& slot_of_;
  std::unordered_set<SlotId> claimed_;  // slots that own memory and are a result already
};

void Claims::add(Program& program, const std::vector<const graph::Value*>& results,
                 const std::vector<ResultLayout>& layouts) {
  std::unordered_set<SlotId> written;
  for (const Instruction& instruction : program.instructions)
    written.insert(instruction.outputs.begin(), instruction.outputs.end());
  for (std::size_t i = 0; i < results.size(); ++i) {
    const SlotId result = slot_of_.at(results[i]);
    if (programs_.slots[result].open) {
      program.outputs.push_back(settled(program, result, layouts[i]));
      continue;
    }
    const at::Tensor& meta = programs_.slots[result].meta;
    const std::optional<Sizes> strides = strides_of(layouts[i], meta.sizes(), meta.strides());
    if (is_own(written, result, strides)) {
      Slot& root = programs_.slots[programs_.root_of(result)];
      if (root.storage == Storage::kArena) root.storage = Storage::kFresh;
      program.outputs.push_back(result);
    } else {
      const Sizes dense = c10::TensorType::contiguousStridesOf(meta.sizes());
      program.outputs.push_back(copied(program, result, strides.value_or(dense)));
    }
  }
}

// Whether a result may keep its root's memory: this program writes it, and the result is all of it, is no
// other result and lies as it has to.
bool Claims::is_own(const std::unordered_set<SlotId>& written, SlotId result,
                    const std::optional<Sizes>& strides) {
  const SlotId root = programs_.root_of(result);
  const at::Tensor& meta = programs_.slots[result].meta;
  const bool whole = programs_.slots[root].meta.numel() == meta.numel();
  return written.contains(root) && whole && (!strides || meta.strides() == *strides) &&
         claimed_.insert(root).second;
}

SlotId Claims::copied(Program& program, SlotId result, const Sizes& strides) {
  const at::Tensor like = programs_.slots[result].meta;
  Instruction copy;
  copy.kernel = [strides](const Args& args) {
    const at::Tensor to = each_once(args.out(), strides);
    args.in(0).defined() ? to.copy_(each_once(args.in(0), strides)) : to.zero_();
  };
  const at::Tensor meta = at::empty_strided(like.sizes(), strides, like.options());
  copy.inputs = {result};
  copy.outputs = {programs_.add(Storage::kFresh, meta, nullptr)};
  const SlotId made = copy.outputs[0];
  claimed_.insert(made);
  program.instructions.push_back(std::move(copy));
  return made;
}

// A result whose sizes are known when it is there: it then lies as it has to, or is copied. The backward
// reads it where the caller may write to it, so that this is seen.
SlotId Claims::settled(Program& program, SlotId result, const ResultLayout& layout) {
  const bool first = programs_.slots[result].storage == Storage::kGiven && claimed_.insert(result).second;
  if (first && layout.kind == ResultLayout::Kind::kAny) return result;
  Instruction settle;
  settle.inputs = {result};
  settle.outputs = {programs_.add_open(programs_.slots[result].value)};
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
  const SlotId made = settle.outputs[0];
  claimed_.insert(made);
  if (first && &program == &programs_.forward) {
    for (Instruction& instruction : programs_.backward.instructions)
      std::ranges::replace(instruction.inputs, result, made);
  }
  program.instructions.push_back(std::move(settle));
  return made;
}

std::vector<ResultLayout> output_layouts(const PlanRequest& request) {
  std::vector<ResultLayout> layouts;
  if (request.output_layouts != nullptr) layouts = *request.output_layouts;
  layouts.resize(request.joint->forward_outputs);
  return layouts;
}

std::vector<ResultLayout> gradient_layouts(const PlanRequest& request) {
  std::vector<ResultLayout> layouts;
  for (const std::size_t input : request.joint->gradient_of) {
    const bool known = request.gradient_layouts != nullptr && input < request.gradient_layouts->size();
    layouts.push_back(known ? (*request.gradient_layouts)[input] : ResultLayout());
  }
  return layouts;
}

// Drops, last first, instructions that neither draw random numbers nor write something read later. Returns
// which roots are read.
std::vector<bool> prune(Programs& programs) {
  std::vector<bool> read(programs.slots.size(), false);
  for (const Program* program : {&programs.forward, &programs.backward}) {
    for (const SlotId slot : program->outputs) read[programs.root_of(slot)] = true;
  }
  for (Program* program : {&programs.backward, &programs.forward}) {
    auto& instructions = program->instructions;
    std::vector<Instruction> kept;
    for (auto it = instructions.rbegin(); it != instructions.rend(); ++it) {
      const bool random = it->node != nullptr && graph::is_random(*it->node);
      const bool needed =
          std::any_of(it->outputs.begin(), it->outputs.end(), [&](SlotId slot) { return read[slot]; });
      if (!needed && !random) continue;
      for (const SlotId slot : it->inputs) read[programs.root_of(slot)] = true;
      kept.push_back(std::move(*it));
    }
    instructions.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
  }
  return read;
}

// Lowerings read constants on the host; kernels find them on the device, and those that no kernel reads
// nowhere.
void place_constants(Programs& programs, const std::vector<bool>& read, at::Device device) {
  for (SlotId id = 1; id < programs.slots.size(); ++id) {
    Slot& slot = programs.slots[id];
    if (slot.storage == Storage::kConstant)
      slot.constant = read[id] ? slot.constant.to(device) : at::Tensor();
  }
}

}  // namespace

Claimed claim_results(const PlanRequest& request, Lowered lowered) {
  const auto& outputs = request.joint->graph->outputs();
  const auto split = outputs.begin() + static_cast<std::ptrdiff_t>(request.joint->forward_outputs);
  Claims claims(lowered);
  claims.add(lowered.programs.forward, {outputs.begin(), split}, output_layouts(request));
  if (request.record)
    claims.add(lowered.programs.backward, {split, outputs.end()}, gradient_layouts(request));
  place_constants(lowered.programs, prune(lowered.programs), request.device);
  return {std::move(lowered.programs)};
}

}  // namespace rekindle::session
