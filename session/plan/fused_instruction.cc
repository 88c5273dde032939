#include "session/plan/fused_instruction.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "session/lower/settled.h"
#include "session/lower/tensor_types.h"
#include "session/run/fused_kernel.h"
#include "src/fusion/kernel_source.h"

namespace rekindle::session {
namespace {

class Assembly {
 public:
  Assembly(Programs& programs, std::vector<Instruction> members, Sizes sizes,
           const std::unordered_set<SlotId>& is_read, at::Device device)
      : programs_(programs), members_(std::move(members)), is_read_(is_read), sizes_(std::move(sizes)) {
    parts_.device = device;
    for (const Instruction& member : members_) made_.emplace(member.outputs[0], made_.size());
  }

  Instruction run() {
    for (const Instruction& member : members_) add_steps(member);
    for (auto member = members_.rbegin(); member != members_.rend(); ++member) add_output(*member);
    parts_.operands = instruction_.inputs.size();
    access_.strides.insert(access_.strides.end(), output_strides_.begin(), output_strides_.end());
    access_.sizes = sizes_;
    parts_.kernel = fusion::kernel_source(body_, fusion::collapsed(access_));
    add_members();
    instruction_.node = members_.back().node;
    for (std::size_t i = 0; i < parts_.operands; ++i) instruction_.in_place.push_back(i);
    instruction_.fused = std::make_shared<FusedKernel>(std::move(parts_));
    instruction_.kernel = [fused = instruction_.fused](const Args& args) { fused->run(args); };
    return std::move(instruction_);
  }

 private:
  const at::Tensor& meta(SlotId slot) const { return programs_.slots[slot].meta; }

  bool has_other_sizes(const Instruction& member) const {
    return meta(member.outputs[0]).sizes() != at::IntArrayRef(sizes_);
  }

  // Over sizes_, of a slot that the member reads or writes.
  Sizes strides_of(const Instruction& member, SlotId slot) const {
    if (!has_other_sizes(member)) return meta(slot).expand(sizes_).strides().vec();
    if (meta(slot).numel() == 1 && meta(member.outputs[0]).numel() != 1) return Sizes(sizes_.size(), 0);
    return c10::TensorType::contiguousStridesOf(sizes_);
  }

  fusion::Operand operand_of(const Instruction& member, SlotId slot) {
    using From = fusion::Operand::From;
    if (const auto made = step_of_.find(programs_.root_of(slot)); made != step_of_.end())
      return {From::kStep, made->second, 0};
    Sizes strides = strides_of(member, slot);
    const auto [known, is_new] = operands_.try_emplace({slot, strides}, operands_.size());
    if (is_new) {
      instruction_.inputs.push_back(slot);
      body_.inputs.push_back(dtype_of(meta(slot).scalar_type()));
      access_.strides.push_back(std::move(strides));
    }
    return {From::kInput, known->second, 0};
  }

  void add_steps(const Instruction& member) {
    const std::size_t first = body_.steps.size();
    for (const fusion::Step& step : member.pointwise) {
      fusion::Step made = step;
      for (fusion::Operand& operand : made.operands) {
        if (operand.from == fusion::Operand::From::kInput)
          operand = operand_of(member, member.inputs[operand.index]);
        else if (operand.from == fusion::Operand::From::kStep)
          operand.index += first;
      }
      body_.steps.push_back(std::move(made));
    }
    step_of_[member.outputs[0]] = body_.steps.size() - 1;
    parts_.name += (parts_.name.empty() ? "" : "+") + member.node->op_type();
  }

  void add_output(const Instruction& member) {
    const SlotId root = member.outputs[0];
    Slot& slot = programs_.slots[root];
    if (!is_read_.contains(root) && !instruction_.outputs.empty()) return forget(root);
    if (slot.storage == Storage::kGiven) slot.storage = Storage::kFresh;
    instruction_.outputs.push_back(root);
    body_.outputs.push_back(step_of_.at(root));
    output_strides_.push_back(strides_of(member, root));
  }

  void forget(SlotId root) {
    for (const SlotId view : std::exchange(programs_.slots[root].views, {})) forget(view);
    forgotten_.push_back(root);
  }

  // The members' own kernels, over slots of the fused one: its inputs, then what they compute. What they read
  // through a view they get as that view.
  void add_members() {
    std::unordered_map<SlotId, std::uint32_t> local;
    local[kAbsentSlot] = 0;
    for (std::size_t i = 0; i < instruction_.inputs.size(); ++i)
      local.emplace(instruction_.inputs[i], static_cast<std::uint32_t>(i + 1));
    for (const Instruction& member : members_) {
      for (const SlotId slot : member.inputs) {
        const auto next = static_cast<std::uint32_t>(instruction_.inputs.size() + 1);
        if (!made_.contains(programs_.root_of(slot)) && local.emplace(slot, next).second)
          instruction_.inputs.push_back(slot);
      }
    }
    parts_.inputs = instruction_.inputs.size();
    parts_.slots = 1 + parts_.inputs + members_.size();
    for (const Instruction& member : members_) add_member(member, local);
    for (const SlotId root : instruction_.outputs) parts_.outputs.push_back(number_of(root));
    add_releases();
    for (const SlotId slot : forgotten_) programs_.slots[slot].storage = Storage::kAbsent;
  }

  std::uint32_t number_of(SlotId root) const {
    return static_cast<std::uint32_t>(1 + parts_.inputs + made_.at(root));
  }

  void add_member(const Instruction& member, const std::unordered_map<SlotId, std::uint32_t>& local) {
    FusedKernel::Member made;
    made.kernel = member.kernel;
    made.outputs = {number_of(member.outputs[0])};
    made.layout = layout_of(meta(member.outputs[0]));
    for (const SlotId slot : member.inputs) {
      const SlotId root = programs_.root_of(slot);
      if (made_.contains(root) && meta(root).sizes() != meta(slot).sizes()) {
        made.inputs.push_back(static_cast<std::uint32_t>(parts_.slots++));
        made.views.push_back({made.inputs.back(), number_of(root), meta(slot).sizes().vec()});
      } else {
        made.inputs.push_back(made_.contains(root) ? number_of(root) : local.at(slot));
      }
    }
    parts_.members.push_back(std::move(made));
  }

  void add_releases() {
    std::unordered_map<std::uint32_t, std::size_t> last;
    for (std::size_t i = 0; i < parts_.members.size(); ++i) {
      for (const std::uint32_t slot : parts_.members[i].inputs) last[slot] = i;
      for (const FusedKernel::Member::View& view : parts_.members[i].views) last[view.base] = i;
    }
    for (const auto& [slot, member] : last) {
      const bool is_made = slot > parts_.inputs,
                 is_result = std::ranges::find(parts_.outputs, slot) != parts_.outputs.end();
      if (is_made && !is_result) parts_.members[member].release.push_back(slot);
    }
  }

  Programs& programs_;
  std::vector<Instruction> members_;
  const std::unordered_set<SlotId>& is_read_;
  const Sizes sizes_;
  Instruction instruction_;
  FusedKernel::Parts parts_;
  fusion::Body body_;
  fusion::Access access_;
  std::vector<Sizes> output_strides_;
  std::map<std::pair<SlotId, Sizes>, std::size_t> operands_;
  std::unordered_map<SlotId, std::size_t> step_of_;  // by root
  std::unordered_map<SlotId, std::size_t> made_;     // by root: the member
  std::vector<SlotId> forgotten_;
};

}  // namespace

bool is_row_major(const Programs& programs, const Instruction& instruction) {
  const at::Tensor& made = programs.slots[instruction.outputs[0]].meta;
  return made.is_contiguous() && std::ranges::all_of(instruction.inputs, [&](SlotId slot) {
           const at::Tensor& read = programs.slots[slot].meta;
           if (slot == kAbsentSlot || read.numel() == 1) return true;
           return read.sizes() == made.sizes() && read.is_contiguous();
         });
}

Instruction fused_instruction(Programs& programs, std::vector<Instruction> members, Sizes sizes,
                              const std::unordered_set<SlotId>& is_read, at::Device device) {
  return Assembly(programs, std::move(members), std::move(sizes), is_read, device).run();
}

}  // namespace rekindle::session
