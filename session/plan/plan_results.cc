// Results: how they lie, which get memory of their own, after which instruction each gradient can leave.
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "session/plan/plan_builder.h"

namespace rekindle::session {

std::vector<ResultLayout> PlanBuilder::output_layouts() const {
  std::vector<ResultLayout> layouts;
  if (request_.output_layouts != nullptr) layouts = *request_.output_layouts;
  layouts.resize(request_.joint->forward_outputs);
  return layouts;
}

std::vector<ResultLayout> PlanBuilder::gradient_layouts() const {
  std::vector<ResultLayout> layouts;
  for (const std::size_t input : request_.joint->gradient_of) {
    const bool known = request_.gradient_layouts != nullptr && input < request_.gradient_layouts->size();
    layouts.push_back(known ? (*request_.gradient_layouts)[input] : ResultLayout());
  }
  return layouts;
}

// A result keeps its root's memory when the root is written by this program, is all of it, is no other result
// and lies as it has to.
void PlanBuilder::claim_results(Program& program, const std::vector<const graph::Value*>& results,
                                const std::vector<ResultLayout>& layouts) {
  std::unordered_set<SlotId> written;
  for (const Instruction& instruction : program.instructions) {
    written.insert(instruction.outputs.begin(), instruction.outputs.end());
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    SlotId result = slot_of(results[i]);
    const SlotId root = root_of(result);
    if (plan_->slots[result].open) {
      program.outputs.push_back(claim_open(program, result, layouts[i]));
      continue;
    }
    const at::Tensor& meta = plan_->slots[result].meta;
    const bool whole = plan_->slots[root].meta.numel() == meta.numel();
    const std::optional<Sizes> strides = strides_of(layouts[i], meta.sizes(), meta.strides());
    const bool laid_out = !strides || meta.strides() == *strides;
    if (written.contains(root) && whole && laid_out && claimed_.insert(root).second) {
      if (plan_->slots[root].storage == Storage::kArena) plan_->slots[root].storage = Storage::kFresh;
    } else {
      copy_result(program, result, strides.value_or(c10::TensorType::contiguousStridesOf(meta.sizes())));
    }
    program.outputs.push_back(result);
  }
}

void PlanBuilder::copy_result(Program& program, SlotId& result, const Sizes& strides) {
  const at::Tensor like = plan_->slots[result].meta;
  Instruction copy;
  copy.kernel = [strides](const Args& args) {
    const at::Tensor to = each_once(args.out(), strides);
    args.in(0).defined() ? to.copy_(each_once(args.in(0), strides)) : to.zero_();
  };
  copy.inputs = {result};
  copy.outputs = {
      add_slot(Storage::kFresh, at::empty_strided(like.sizes(), strides, like.options()), nullptr)};
  result = copy.outputs[0];
  claimed_.insert(result);
  program.instructions.push_back(std::move(copy));
}

// Per gradient, after how many instructions it is there and nothing reads it any more.
std::vector<std::size_t> PlanBuilder::gradient_ends() const {
  const Program& program = plan_->backward;
  std::unordered_map<SlotId, std::size_t> gradient_in;  // root slot -> position in outputs
  for (std::size_t i = 0; i < program.outputs.size(); ++i) gradient_in[root_of(program.outputs[i])] = i;
  std::vector<std::size_t> end(program.outputs.size(), 0);
  for (std::size_t at = 0; at < program.instructions.size(); ++at) {
    const Instruction& instruction = program.instructions[at];
    for (const auto* slots : {&instruction.inputs, &instruction.outputs}) {
      for (const SlotId slot : *slots) {
        if (const auto found = gradient_in.find(root_of(slot)); found != gradient_in.end())
          end[found->second] = at + 1;
      }
    }
  }
  return end;
}

// Gradients leave in the order that is asked for: one that is there early waits for those before it.
void PlanBuilder::find_deliveries() {
  std::vector<std::size_t> ends = gradient_ends();
  std::unordered_map<std::size_t, std::size_t> gradient_of;  // forward input -> gradient
  for (std::size_t i = 0; i < ends.size(); ++i) gradient_of[request_.joint->gradient_of[i]] = i;
  std::vector<std::size_t> rank(ends.size(), ends.size());
  std::size_t last = 0, next = 0;
  for (const std::size_t input :
       request_.gradient_order ? *request_.gradient_order : std::vector<std::size_t>()) {
    const auto found = gradient_of.find(input);
    if (found == gradient_of.end()) continue;
    rank[found->second] = next++;
    last = ends[found->second] = std::max(ends[found->second], last);
  }
  std::vector<std::size_t> order(ends.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](std::size_t i) { return std::tuple(ends[i], rank[i], i); });
  const std::size_t completions = std::unordered_set<std::size_t>(ends.begin(), ends.end()).size();
  const std::size_t share = completions / kMaxDeliveries + 1;  // completions that leave together
  std::size_t seen = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if ((i == 0 || ends[order[i]] != ends[order[i - 1]]) && seen++ % share == 0)
      plan_->deliveries.emplace_back();
    plan_->deliveries.back().end = ends[order[i]];
    plan_->deliveries.back().gradients.push_back(order[i]);
  }
}

}  // namespace rekindle::session
