#include "session/plan/memory_account.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "device/memory.h"
#include "session/plan/plan.h"

namespace rekindle::session {
namespace {

class Accounting {
 public:
  explicit Accounting(const Plan& plan);
  MemoryAccount run();

 private:
  struct Lifetime {
    const Instruction* made_by = nullptr;
    std::int32_t first = 0, last = 0;
  };

  void find_lifetimes();
  void end_taken_over(std::int32_t position);
  void end_outside();
  void add(SlotId slot, const Lifetime& lifetime);
  MemoryUse use_of(SlotId slot) const;
  std::size_t largest_outside() const;
  PhaseMemory phase(std::int32_t begin, std::int32_t end) const;

  const Plan& plan_;
  const std::size_t alignment_;
  std::vector<const Instruction*> timeline_;
  std::unordered_map<SlotId, Lifetime> lifetimes_;  // of roots that instructions make
  std::vector<SlotId> made_;                        // in their order
  std::unordered_set<SlotId> saved_, results_, gradients_;
  MemoryAccount account_;
};

Accounting::Accounting(const Plan& plan)
    : plan_(plan),
      alignment_(device::alignment_of(plan.device)),
      saved_(plan.saved.begin(), plan.saved.end()) {
  for (const Program* program : {&plan.forward, &plan.backward}) {
    for (const Instruction& instruction : program->instructions) timeline_.push_back(&instruction);
  }
  for (const SlotId slot : plan.forward.outputs) results_.insert(plan.root_of(slot));
  for (const SlotId slot : plan.backward.outputs) gradients_.insert(plan.root_of(slot));
}

MemoryAccount Accounting::run() {
  find_lifetimes();
  for (const SlotId slot : made_) add(slot, lifetimes_.at(slot));
  for (const Slot& slot : plan_.slots) {
    if (slot.storage == Storage::kConstant && slot.constant.defined())
      account_.constant_bytes += slot.constant.nbytes();
  }
  for (const SlotId slot : plan_.backward.inputs) {
    if (!plan_.slots[slot].open) account_.cotangent_bytes += plan_.slots[slot].bytes;
  }
  account_.arena_bytes = plan_.arena_bytes;
  const auto begin = static_cast<std::int32_t>(plan_.forward.instructions.size());
  account_.activation_bytes = plan_.arena_bytes + largest_outside();
  if (const Recomputation& made = plan_.recomputation; made.budget_bytes > 0)
    account_.budget = {made.budget_bytes, made.bytes_without, made.instructions, made.share};
  account_.forward = phase(0, begin);
  account_.backward = phase(begin, static_cast<std::int32_t>(timeline_.size()));
  return std::move(account_);
}

void Accounting::find_lifetimes() {
  for (std::int32_t at = 0; at < static_cast<std::int32_t>(timeline_.size()); ++at) {
    const Instruction& instruction = *timeline_[static_cast<std::size_t>(at)];
    for (const SlotId slot : instruction.outputs) {
      const SlotId root = plan_.root_of(slot);
      if (lifetimes_.try_emplace(root, Lifetime{&instruction, at, at}).second) made_.push_back(root);
    }
    for (const auto* slots : {&instruction.inputs, &instruction.outputs}) {
      for (const SlotId slot : *slots) {
        if (const auto known = lifetimes_.find(plan_.root_of(slot)); known != lifetimes_.end())
          known->second.last = at;
      }
    }
    end_taken_over(at);
  }
  const auto begin = static_cast<std::int32_t>(plan_.forward.instructions.size());
  for (const SlotId slot : plan_.kept) {  // other backwards may read it
    if (const auto known = lifetimes_.find(slot); known != lifetimes_.end())
      known->second.last = std::max(known->second.last, begin);
  }
  end_outside();
}

// Where an output has the place of an input, that input's memory is the output's from here on. Values that
// live at the same time share no place otherwise.
void Accounting::end_taken_over(std::int32_t position) {
  const Instruction& instruction = *timeline_[static_cast<std::size_t>(position)];
  const Slot& output = plan_.slots[instruction.outputs.at(0)];
  if (output.storage != Storage::kArena || output.bytes == 0) return;
  for (const std::size_t i : instruction.in_place) {
    const SlotId root = plan_.root_of(instruction.inputs[i]);
    const auto known = lifetimes_.find(root);
    if (plan_.slots[root].storage == Storage::kArena && plan_.slots[root].offset == output.offset &&
        known != lifetimes_.end())
      known->second.last = position - 1;
  }
}

// Memory outside of the arena lives until its release, or until the end: the frame, or who got it, keeps it.
void Accounting::end_outside() {
  const auto end = static_cast<std::int32_t>(timeline_.size()) - 1;
  for (auto& [slot, lifetime] : lifetimes_) {
    if (plan_.slots[slot].storage != Storage::kArena) lifetime.last = end;
  }
  for (std::int32_t at = 0; at <= end; ++at) {
    for (const SlotId slot : timeline_[static_cast<std::size_t>(at)]->release) {
      if (const auto known = lifetimes_.find(slot); known != lifetimes_.end()) known->second.last = at;
    }
  }
}

void Accounting::add(SlotId id, const Lifetime& lifetime) {
  const Slot& slot = plan_.slots[id];
  const graph::Node* node = lifetime.made_by->node;
  const std::string name = slot.value == nullptr ? std::string() : slot.value->name();
  const std::string op = node == nullptr ? "Copy" : node->op_type();
  const std::string source = node == nullptr ? std::string() : node->source();
  if (slot.layout) return;
  if (slot.open || slot.storage == Storage::kHeld) {
    account_.uncounted.push_back({name, op, source, use_of(id), saved_.contains(id)});
    return;
  }
  const bool in_arena = slot.storage == Storage::kArena;
  const std::size_t bytes = in_arena ? (slot.bytes + alignment_ - 1) / alignment_ * alignment_
                                     : slot.meta.unsafeGetTensorImpl()->storage().nbytes();
  if (bytes == 0) return;
  AccountedValue value{name,  op,           source,         use_of(id),   saved_.contains(id),
                       bytes, std::nullopt, lifetime.first, lifetime.last};
  if (in_arena) value.offset = slot.offset;
  account_.values.push_back(std::move(value));
}

MemoryUse Accounting::use_of(SlotId slot) const {
  if (results_.contains(slot)) return MemoryUse::kResult;
  if (gradients_.contains(slot)) return MemoryUse::kGradient;
  if (saved_.contains(slot)) return MemoryUse::kSaved;
  const bool is_scratch = plan_.slots[slot].value == nullptr && plan_.slots[slot].storage == Storage::kArena;
  return is_scratch ? MemoryUse::kScratch : MemoryUse::kIntermediate;
}

// Of what is neither in the arena nor leaves the session.
std::size_t Accounting::largest_outside() const {
  std::vector<std::size_t> changes(timeline_.size() + 1);  // modulo 2^64
  for (const AccountedValue& value : account_.values) {
    if (value.offset || value.use == MemoryUse::kResult || value.use == MemoryUse::kGradient) continue;
    changes[static_cast<std::size_t>(value.first)] += value.bytes;
    changes[static_cast<std::size_t>(value.last) + 1] -= value.bytes;
  }
  std::size_t live = 0, most = 0;
  for (const std::size_t change : changes) most = std::max(most, live += change);
  return most;
}

PhaseMemory Accounting::phase(std::int32_t begin, std::int32_t end) const {
  PhaseMemory phase;
  phase.instructions = end - begin;
  phase.live_peak_at = begin;
  // What becomes live and what no longer is, at each instruction, modulo 2^64.
  std::vector<std::size_t> inside(timeline_.size() + 1), outside(timeline_.size() + 1);
  for (const AccountedValue& value : account_.values) {
    auto& changes = value.offset ? inside : outside;
    changes[static_cast<std::size_t>(value.first)] += value.bytes;
    changes[static_cast<std::size_t>(value.last) + 1] -= value.bytes;
  }
  std::size_t live = 0, of_own = 0;
  for (std::int32_t at = 0; at < end; ++at) {
    live += inside[static_cast<std::size_t>(at)];
    of_own += outside[static_cast<std::size_t>(at)];
    if (at < begin) continue;
    if (live > phase.live_peak) {
      phase.live_peak = live;
      phase.live_peak_at = at;
    }
    phase.outside_peak = std::max(phase.outside_peak, of_own);
  }
  return phase;
}

}  // namespace

MemoryAccount account_of(const Plan& plan) { return Accounting(plan).run(); }

}  // namespace rekindle::session
