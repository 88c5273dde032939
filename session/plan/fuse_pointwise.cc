#include "session/plan/fuse_pointwise.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "device/kernel_compiler.h"
#include "session/plan/fused_instruction.h"
#include "src/fusion/body.h"

namespace rekindle::session {
namespace {

constexpr std::size_t kMaxSteps = 64, kMaxInputs = 24;
// Instructions that a group may wait for its next member: what it reads lives as long.
constexpr std::size_t kMaxWait = 32;

// The gradients that may be absent of which each root of the backward is made, and of nothing else: it is
// absent where all of them are. Those of other roots are none.
class AbsentTogether {
 public:
  explicit AbsentTogether(const Programs& programs) {
    std::unordered_set<SlotId> linear;
    for (const SlotId slot : programs.backward.inputs) linear.insert(programs.root_of(slot));
    for (const Instruction& instruction : programs.backward.instructions) {
      std::set<SlotId> sources;
      bool is_linear = false, is_there = false;
      for (const SlotId slot : instruction.inputs) {
        const SlotId root = programs.root_of(slot);
        if (!linear.contains(root)) continue;
        is_linear = true;
        is_there = is_there || of(root).empty();
        sources.insert(of(root).begin(), of(root).end());
      }
      if (!is_linear) continue;
      for (const SlotId slot : instruction.outputs) {
        linear.insert(slot);
        if (instruction.absence.may_give) {
          sources_[slot] = {slot};
        } else if (!is_there) {
          sources_[slot] = sources;
        }
      }
    }
  }

  const std::set<SlotId>& of(SlotId root) const {
    static const std::set<SlotId> none;
    const auto found = sources_.find(root);
    return found == sources_.end() ? none : found->second;
  }

 private:
  std::unordered_map<SlotId, std::set<SlotId>> sources_;
};

// Fuses the instructions of one program.
class Fusion {
 public:
  Fusion(Programs& programs, Program& program, const KeptValues* kept, at::Device device)
      : programs_(programs),
        program_(program),
        kept_(kept),
        device_(device),
        absent_(programs),
        group_of_(program.instructions.size(), kNone) {
    for (std::size_t at = 0; at < program.instructions.size(); ++at)
      for (const SlotId slot : program.instructions[at].outputs) written_at_[slot] = at;
  }

  void run() {
    for (std::size_t at = 0; at < program_.instructions.size(); ++at) add(at);
    find_readers();
    std::vector<Instruction> made;
    for (std::size_t at = 0; at < program_.instructions.size(); ++at) {
      const std::size_t number = group_of_[at];
      if (number == kNone || groups_[number].members.size() == 1) {
        made.push_back(std::move(program_.instructions[at]));
      } else if (groups_[number].members.back() == at) {
        made.push_back(fused(groups_[number]));
      }
    }
    program_.instructions = std::move(made);
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  struct Group {
    std::vector<std::size_t> members;  // in order
    std::unordered_set<SlotId> inputs;
    std::size_t steps = 0;
    SlotId domain = kAbsentSlot;  // an output in whose sizes elements are counted
    bool is_row_major = true;     // each member is
    bool is_open = true;
  };

  const at::Tensor& meta(SlotId slot) const { return programs_.slots[slot].meta; }

  // The group that has written what the slot views; kNone where no group has.
  std::size_t writer_of(SlotId slot) const {
    const auto found = written_at_.find(programs_.root_of(slot));
    return found == written_at_.end() ? kNone : group_of_[found->second];
  }

  bool can_fuse(const Instruction& instruction) const {
    if (instruction.pointwise.empty() || instruction.outputs.size() != 1) return false;
    const auto is_plain = [&](SlotId slot) {
      const Slot& of = programs_.slots[slot];
      return slot == kAbsentSlot || (!of.open && !of.layout && of.storage != Storage::kHeld &&
                                     !of.meta.is_conj() && !of.meta.is_neg());
    };
    const SlotId output = instruction.outputs[0];
    return std::ranges::all_of(instruction.inputs, is_plain) && is_plain(output) &&
           meta(output).numel() > 0 && meta(output).is_non_overlapping_and_dense();
  }

  void add(std::size_t at) {
    const Instruction& instruction = program_.instructions[at];
    const bool may_join = can_fuse(instruction);
    std::size_t joined = kNone;
    for (const SlotId slot : instruction.inputs) {
      const std::size_t number = writer_of(slot);
      if (number == kNone || number == joined) continue;
      if (may_join && joins(at, number, joined)) {
        joined = joined == kNone ? number : merged(joined, number);
      } else {
        groups_[number].is_open = false;
      }
    }
    if (!may_join) return;
    if (joined == kNone) {
      joined = groups_.size();
      groups_.emplace_back();
    }
    join(at, joined);
  }

  // What a kernel is given: numbers that are known become part of it.
  void add_inputs(const Instruction& instruction, std::unordered_set<SlotId>& inputs) const {
    for (const SlotId slot : instruction.inputs) {
      const Slot& of = programs_.slots[slot];
      const bool is_number = of.storage == Storage::kConstant && of.meta.dim() == 0;
      if (slot != kAbsentSlot && !is_number) inputs.insert(slot);
    }
  }

  // Whether the instruction computes its elements from those of the group, one from one, as part of the group
  // that it has joined already.
  bool joins(std::size_t at, std::size_t number, std::size_t joined) const {
    const Group& group = groups_[number];
    const Instruction& instruction = program_.instructions[at];
    if (!group.is_open || at - group.members.back() > kMaxWait) return false;
    if (absent_.of(instruction.outputs[0]) != absent_.of(group.domain)) return false;
    std::unordered_set<SlotId> inputs = group.inputs;
    std::size_t steps = group.steps + instruction.pointwise.size();
    add_inputs(instruction, inputs);
    if (joined != kNone) {
      const Group& other = groups_[joined];
      const bool is_alike = meta(other.domain).sizes() == meta(group.domain).sizes();
      if (!is_alike && !(group.is_row_major && other.is_row_major)) return false;
      inputs.insert(other.inputs.begin(), other.inputs.end());
      steps += other.steps;
    }
    std::erase_if(inputs, [&](SlotId slot) {
      const std::size_t writer = writer_of(slot);
      return writer != kNone && (writer == number || writer == joined);
    });
    if (steps > kMaxSteps || inputs.size() > kMaxInputs) return false;
    return std::ranges::all_of(instruction.inputs, [&](SlotId slot) {
      return writer_of(slot) != number || reads_one_by_one(instruction, slot, group);
    });
  }

  // Whether element i of the instruction is made from element i of what the slot views.
  bool reads_one_by_one(const Instruction& instruction, SlotId slot, const Group& group) const {
    const at::Tensor &read = meta(slot), &root = meta(programs_.root_of(slot)),
                     &made = meta(instruction.outputs[0]);
    if (read.storage_offset() != 0) return false;
    if (made.sizes() == meta(group.domain).sizes())
      return read.sizes() == made.sizes() && root.sizes() == read.sizes() && root.strides() == read.strides();
    return root.numel() == made.numel() && read.sizes() == made.sizes() && read.is_contiguous() &&
           root.is_contiguous() && made.is_contiguous() &&
           (group.is_row_major || is_row_major(programs_, instruction));
  }

  std::size_t merged(std::size_t a, std::size_t b) {
    Group &to = groups_[a], &from = groups_[b];
    for (const std::size_t member : from.members) group_of_[member] = a;
    to.members.insert(to.members.end(), from.members.begin(), from.members.end());
    std::ranges::sort(to.members);
    to.inputs.insert(from.inputs.begin(), from.inputs.end());
    to.steps += from.steps;
    to.is_row_major = to.is_row_major && from.is_row_major;
    from = {};
    from.is_open = false;
    return a;
  }

  void join(std::size_t at, std::size_t number) {
    const Instruction& instruction = program_.instructions[at];
    Group& group = groups_[number];
    group.members.push_back(at);
    add_inputs(instruction, group.inputs);
    group.steps += instruction.pointwise.size();
    group_of_[at] = number;
    const bool may_be_counted = is_row_major(programs_, instruction);
    if (group.domain == kAbsentSlot || (group.is_row_major && !may_be_counted))
      group.domain = instruction.outputs[0];
    group.is_row_major = group.is_row_major && may_be_counted;
  }

  // Says which roots others than their own group read.
  void find_readers() {
    for (const Program* program : {&programs_.forward, &programs_.backward}) {
      for (const SlotId slot : program->outputs) is_read_.insert(programs_.root_of(slot));
      for (std::size_t at = 0; at < program->instructions.size(); ++at) {
        for (const SlotId slot : program->instructions[at].inputs) {
          const std::size_t writer = writer_of(slot);
          const bool is_own = program == &program_ && writer != kNone && group_of_[at] == writer;
          if (!is_own) is_read_.insert(programs_.root_of(slot));
        }
      }
    }
    if (kept_ == nullptr) return;
    for (SlotId slot = 1; slot < programs_.slots.size(); ++slot) {
      if (kept_->is_read(programs_.slots[slot])) is_read_.insert(programs_.root_of(slot));
    }
  }

  Instruction fused(const Group& group) {
    std::vector<Instruction> members;
    for (const std::size_t member : group.members)
      members.push_back(std::move(program_.instructions[member]));
    return fused_instruction(programs_, std::move(members), meta(group.domain).sizes().vec(), is_read_,
                             device_);
  }

  Programs& programs_;
  Program& program_;
  const KeptValues* kept_;  // null for the backward's
  const at::Device device_;
  const AbsentTogether absent_;
  std::unordered_map<SlotId, std::size_t> written_at_;  // by root: the instruction
  std::vector<std::size_t> group_of_;                   // by instruction
  std::vector<Group> groups_;
  std::unordered_set<SlotId> is_read_;  // roots
};

}  // namespace

bool fuses(const PlanRequest& request) {
  return request.fuse && device::kernel_compiler(request.device.type()) != nullptr;
}

Claimed fuse_pointwise(const PlanRequest& request, Claimed claimed) {
  if (!fuses(request)) return claimed;
  Programs& programs = claimed.programs;
  Fusion(programs, programs.forward, request.kept, request.device).run();
  Fusion(programs, programs.backward, nullptr, request.device).run();
  return claimed;
}

}  // namespace rekindle::session
