// The stage schedule(): what the forward leaves, when gradients and memory go, what may be absent.
#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "session/plan/stages.h"

namespace rekindle::session {
namespace {

// The memory that a forward leaves for backwards.
class SavedSlots {
 public:
  explicit SavedSlots(const Programs& programs) : programs_(programs), seen_(programs.slots.size(), false) {
    for (const Instruction& instruction : programs.backward.instructions) {
      for (const SlotId slot : instruction.outputs) seen_[slot] = true;
    }
    for (const SlotId slot : programs.backward.inputs) seen_[slot] = true;
  }

  // Adds the root of a slot that a backward reads, unless it is there, or the backward writes it.
  void add(SlotId slot) {
    const SlotId root = programs_.root_of(slot);
    const Storage storage = programs_.slots[root].storage;
    if (seen_[root] || storage == Storage::kConstant || storage == Storage::kAbsent) return;
    seen_[root] = true;
    slots.push_back(root);
  }

  std::vector<SlotId> slots;

 private:
  const Programs& programs_;
  std::vector<bool> seen_;
};

void find_saved(Plan& plan, const KeptValues& kept) {
  SavedSlots saved(plan);
  for (const Instruction& instruction : plan.backward.instructions) {
    for (const SlotId slot : instruction.inputs) saved.add(slot);
  }
  plan.saved = saved.slots;
  for (const SlotId id : plan.saved) {
    const Slot& slot = plan.slots[id];
    if (slot.storage == Storage::kArena) plan.saved_bytes += slot.bytes;
    if (slot.storage == Storage::kGiven && !slot.open && !slot.layout) plan.saved_bytes += slot.meta.nbytes();
  }
  for (SlotId slot = 1; slot < plan.slots.size(); ++slot) {
    if (plan.slots[slot].layout || kept.is_read(plan.slots[slot])) saved.add(slot);
  }
  plan.kept = std::move(saved.slots);
}

std::unordered_set<SlotId> slots_of(const std::vector<std::size_t>* inputs, const Plan& plan) {
  std::unordered_set<SlotId> slots;
  if (inputs == nullptr) return slots;
  for (const std::size_t input : *inputs) slots.insert(plan.forward.inputs.at(input));
  return slots;
}

void find_remembered(Plan& plan, const PlanRequest& request) {
  const auto as_given = slots_of(request.saved_as_given, plan);
  const auto both_ways = slots_of(request.saved_both_ways, plan);
  for (const SlotId id : plan.kept) {
    const Slot& slot = plan.slots[id];
    if (slot.storage == Storage::kInput && !slot.layout && !slot.open && !as_given.contains(id))
      plan.remembered.push_back({id, both_ways.contains(id)});
  }
}

// Per tape, what the instruction reads that makes it: the tape may hold that.
std::unordered_map<SlotId, std::vector<SlotId>> held_in_tapes(const Programs& programs) {
  std::unordered_map<SlotId, std::vector<SlotId>> held;
  for (const Program* program : {&programs.forward, &programs.backward}) {
    for (const Instruction& instruction : program->instructions) {
      for (const SlotId slot : instruction.outputs) {
        if (programs.slots[slot].storage == Storage::kHeld) held.emplace(slot, instruction.inputs);
      }
    }
  }
  return held;
}

// Per gradient, after how many instructions it is there and nothing reads it any more, nor the input that it
// is of: whoever gets the gradient may step a parameter at once.
std::vector<std::size_t> gradient_ends(const autodiff::JointGraph& joint, const Programs& programs) {
  const Program& program = programs.backward;
  std::unordered_map<SlotId, std::size_t> gradient_in;  // root, of it or its input -> position in outputs
  for (std::size_t i = 0; i < program.outputs.size(); ++i)
    gradient_in[programs.root_of(program.outputs[i])] = i;
  for (std::size_t i = 0; i < joint.gradient_of.size(); ++i)
    gradient_in.emplace(programs.root_of(programs.forward.inputs[joint.gradient_of[i]]), i);
  std::vector<std::size_t> end(program.outputs.size(), 0);
  const auto tapes = held_in_tapes(programs);
  for (std::size_t at = 0; at < program.instructions.size(); ++at) {
    const auto note = [&](const std::vector<SlotId>& slots) {
      for (const SlotId slot : slots) {
        if (const auto found = gradient_in.find(programs.root_of(slot)); found != gradient_in.end())
          end[found->second] = at + 1;
      }
    };
    const Instruction& instruction = program.instructions[at];
    note(instruction.inputs);
    note(instruction.outputs);
    for (const SlotId slot : instruction.inputs) {
      if (const auto tape = tapes.find(slot); tape != tapes.end()) note(tape->second);
    }
  }
  return end;
}

// Gradients leave in the order that is asked for: one that is there early waits for those before it.
std::vector<Delivery> deliveries_of(const PlanRequest& request, const Programs& programs) {
  std::vector<Delivery> deliveries;
  std::vector<std::size_t> ends = gradient_ends(*request.joint, programs);
  std::unordered_map<std::size_t, std::size_t> gradient_of;  // forward input -> gradient
  for (std::size_t i = 0; i < ends.size(); ++i) gradient_of[request.joint->gradient_of[i]] = i;
  std::vector<std::size_t> rank(ends.size(), ends.size());
  std::size_t last = 0, next = 0;
  for (const std::size_t input :
       request.gradient_order ? *request.gradient_order : std::vector<std::size_t>()) {
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
    if ((i == 0 || ends[order[i]] != ends[order[i - 1]]) && seen++ % share == 0) deliveries.emplace_back();
    deliveries.back().end = ends[order[i]];
    deliveries.back().gradients.push_back(order[i]);
  }
  return deliveries;
}

// What each delivery reads of the forward: a hook of one before it may write to that.
void find_reads(Plan& plan) {
  std::unordered_map<SlotId, std::uint32_t> position;
  for (const SlotId id : plan.saved) position.emplace(id, static_cast<std::uint32_t>(position.size()));
  std::size_t at = 0;
  for (Delivery& delivery : plan.deliveries) {
    std::set<std::uint32_t> reads;
    for (; at < delivery.end; ++at) {
      for (const SlotId slot : plan.backward.instructions[at].inputs) {
        const auto found = position.find(plan.root_of(slot));
        if (found != position.end() && !plan.slots[found->first].layout) reads.insert(found->second);
      }
    }
    delivery.reads.assign(reads.begin(), reads.end());
  }
}

// What depends on a cotangent is linear in all cotangents that it depends on: absent ones make it absent.
void find_absent(Programs& programs) {
  auto& instructions = programs.backward.instructions;
  if (std::ranges::none_of(instructions, [](const auto& each) { return each.absence.may_give; })) return;
  std::unordered_set<SlotId> linear;  // roots
  for (const SlotId slot : programs.backward.inputs) linear.insert(programs.root_of(slot));
  for (Instruction& instruction : instructions) {
    auto& linear_in = instruction.absence.linear_in;
    for (const SlotId slot : instruction.inputs) {
      if (linear.contains(programs.root_of(slot))) linear_in.push_back(programs.root_of(slot));
    }
    if (linear_in.empty()) continue;
    for (const SlotId slot : instruction.outputs) linear.insert(programs.root_of(slot));
  }
}

// What the caller gets, it keeps, and layouts are small and may be read by any backward; all other memory
// that is not the arena's goes when nothing reads it any more.
void release_early(Programs& programs, const KeptValues& kept) {
  const std::vector<Instruction*> instructions = programs.timeline();
  const std::vector<std::int32_t> last = last_uses(programs, kept);
  std::vector<bool> result(programs.slots.size(), false);
  for (const Program* program : {&programs.forward, &programs.backward}) {
    for (const SlotId slot : program->outputs) result[programs.root_of(slot)] = true;
  }
  for (SlotId slot = 1; slot < programs.slots.size(); ++slot) {
    const Storage storage = programs.slots[slot].storage;
    const bool owns = storage == Storage::kFresh || storage == Storage::kGiven || storage == Storage::kHeld;
    if (!owns || programs.slots[slot].layout || result[slot] || last[slot] < 0 ||
        last[slot] >= static_cast<std::int32_t>(instructions.size()))
      continue;
    instructions[static_cast<std::size_t>(last[slot])]->release.push_back(slot);
  }
}

void find_given(Programs& programs) {
  for (Instruction* instruction : programs.timeline()) {
    for (const SlotId slot : instruction->outputs) {
      if (programs.slots[slot].storage == Storage::kGiven) instruction->given.push_back(slot);
    }
  }
}

}  // namespace

Plan schedule(const PlanRequest& request, Placed placed) {
  Plan plan;
  static_cast<Programs&>(plan) = std::move(placed.programs);
  plan.arena_bytes = placed.arena_bytes;
  find_saved(plan, *request.kept);
  find_remembered(plan, request);
  plan.deliveries = deliveries_of(request, plan);
  find_reads(plan);
  find_absent(plan);
  find_given(plan);
  release_early(plan, *request.kept);
  return plan;
}

}  // namespace rekindle::session
