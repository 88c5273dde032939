// The loop: everything else was decided when the plan was made.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "session/lower/tensor_types.h"
#include "session/run/error_note.h"
#include "session/run/frame.h"

namespace rekindle::session {
namespace {

std::string describe(const Instruction& instruction, const Frame& frame) {
  if (instruction.node == nullptr) return "while copying a result";
  const graph::Node& node = *instruction.node;
  std::string text = "while running node '" + node.output()->name() + "' (" + ops_of(instruction) + ")";
  if (!node.source().empty()) text += " from " + node.source();
  text += " with inputs";
  for (const SlotId slot : instruction.inputs) {
    if (!frame[slot].defined()) continue;
    text += c10::str(" ", frame[slot].toString(), frame[slot].sizes());
  }
  return text;
}

at::Tensor allocate(const at::Tensor& meta, const Frame& frame) {
  return at::empty_strided(meta.sizes(), meta.strides(), meta.options().device(frame.plan().device));
}

// Makes zeros of a root that is absent.
void fill_absent(SlotId root, Frame& frame) {
  const Slot& slot = frame.plan().slots[root];
  const at::Tensor layout = slot.open ? frame[root] : slot.meta;
  TORCH_CHECK_NOT_IMPLEMENTED(layout.defined(), "a gradient is absent, and its size is not known");
  if (frame[root].defined() && !frame[root].is_meta()) {
    frame.slots()[root].zero_();
  } else {
    frame.bind(root, allocate(layout, frame).zero_());
  }
  frame.set_absent(root, false);
}

bool has_open_output(const Instruction& instruction, const Frame& frame) {
  return std::ranges::any_of(instruction.outputs, [&](SlotId slot) { return frame.plan().slots[slot].open; });
}

// Runs an instruction whose outputs are absent on zeros, for the layouts of those that are sized by data.
void measure(const Instruction& instruction, Frame& frame) {
  if (!instruction.absence.takes) {
    for (const SlotId root : instruction.absence.linear_in) {
      if (frame.plan().slots[root].open && !frame[root].defined())
        return;  // nor is what follows from it known
    }
    for (const SlotId root : instruction.absence.linear_in) {
      if (frame.is_absent(root)) fill_absent(root, frame);
    }
  }
  instruction.kernel(
      Args(frame.slots(), frame.held(), instruction.inputs.data(), instruction.outputs.data()));
  std::vector<SlotId> emptied = instruction.outputs;
  if (!instruction.absence.takes)
    emptied.insert(emptied.end(), instruction.absence.linear_in.begin(), instruction.absence.linear_in.end());
  for (const SlotId slot : emptied) {
    const Slot& of = frame.plan().slots[slot];
    if (of.layout) continue;
    if (of.open && frame[slot].defined()) frame.slots()[slot] = meta_of(frame[slot]);
    if (of.storage == Storage::kFresh) frame.slots()[slot].reset();
    frame.set_absent(slot, true);
  }
}

// Settles what is absent among the inputs in which an instruction
// is linear; returns whether it has nothing to compute.
bool is_skipped(const Instruction& instruction, Frame& frame) {
  const auto& linear = instruction.absence.linear_in;
  const bool left_out = frame.leaves_out(instruction);
  if (!frame.any_absent() && !left_out) return false;
  const bool all =
      std::all_of(linear.begin(), linear.end(), [&](SlotId root) { return frame.is_absent(root); });
  if (left_out || (all && !instruction.absence.runs)) {
    for (const SlotId slot : instruction.outputs) frame.set_absent(slot, true);
    if (instruction.node != nullptr && has_open_output(instruction, frame)) measure(instruction, frame);
    return true;
  }
  for (const SlotId root : linear) {
    if (!instruction.absence.takes && frame.is_absent(root)) fill_absent(root, frame);
  }
  // Only now: an output may lie in the memory of an input that was absent, and has its root then.
  for (const SlotId slot : instruction.outputs) frame.set_absent(slot, false);
  return false;
}

void run(const Instruction& instruction, Frame& frame) {
  for (const SlotId slot : instruction.allocate)
    frame.bind(slot, allocate(frame.plan().slots[slot].meta, frame));
  instruction.kernel(
      Args(frame.slots(), frame.held(), instruction.inputs.data(), instruction.outputs.data()));
  for (const SlotId slot : instruction.given) {
    const at::Tensor& given = frame[slot];
    const bool absent = !given.defined() || (given.is_meta() && !frame.plan().slots[slot].layout);
    if (instruction.absence.may_give && absent) frame.set_absent(slot, true);
    if (!absent) frame.bind_views(slot);
  }
}

void step(const Instruction& instruction, Frame& frame) {
  if (instruction.absence.linear_in.empty() || !is_skipped(instruction, frame)) run(instruction, frame);
  for (const SlotId slot : instruction.release) frame.release(slot);
}

// As "rekindle::Gemm h1 @ model.py:12 in forward"; rekindle.profile takes it apart.
std::string range_name(const Instruction& instruction) {
  if (instruction.node == nullptr) return "rekindle::copy of a result";
  const graph::Node& node = *instruction.node;
  std::string name = "rekindle::" + ops_of(instruction) + " " + node.output()->name();
  return node.source().empty() ? name : name + " @ " + node.source();
}

// Runs an instruction, as a range of its own while torch.profiler records.
void step_in_range(const Instruction& instruction, Frame& frame) {
  auto recorders = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION);
  if (!recorders.has_value()) [[likely]] {
    return step(instruction, frame);
  }
  const std::string name = range_name(instruction);
  at::RecordFunction range(std::move(*recorders));
  range.before(std::string_view(name));
  step(instruction, frame);
}

}  // namespace

void execute(const Program& program, Frame& frame) {
  execute(program, frame, 0, program.instructions.size());
}

void execute(const Program& program, Frame& frame, std::size_t begin, std::size_t end) {
  // Kernels run below autograd, but some (matmul_out) ask the grad mode
  // themselves before they write into an output.
  const at::NoGradGuard no_grad;
  const c10::DeviceGuard guard(frame.plan().device);
  frame.enter_stream();
  if (RecordedRuns* const recorded = frame.recorded_runs()) return recorded->run(program, frame, begin, end);
  run_instructions(program, frame, begin, end);
}

void run_instructions(const Program& program, Frame& frame, std::size_t begin, std::size_t end) {
  for (std::size_t at = begin; at < end; ++at) {
    const Instruction& instruction = program.instructions[at];
    try {
      step_in_range(instruction, frame);
    } catch (c10::Error& error) {
      error.add_context(describe(instruction, frame));
      throw;
    } catch (...) {
      note_error(describe(instruction, frame));
      throw;
    }
  }
}

}  // namespace rekindle::session
