// The loop: everything else was decided when the plan was made.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <string>

#include "session/error_note.h"
#include "session/frame.h"

namespace rekindle::session {
namespace {

std::string describe(const Instruction& instruction, const Frame& frame) {
  if (instruction.node == nullptr) return "while copying a result";
  const graph::Node& node = *instruction.node;
  std::string text = "while running node '" + node.output()->name() + "' (" + node.op_type() + ")";
  if (!node.source().empty()) text += " from " + node.source();
  text += " with inputs";
  for (const SlotId slot : instruction.inputs) {
    if (!frame[slot].defined()) continue;
    text += " " + frame[slot].toString() + c10::str(frame[slot].sizes());
  }
  return text;
}

// Settles what is absent among the inputs in which an instruction is linear;
// returns whether it has nothing to compute.
bool is_skipped(const Instruction& instruction, Frame& frame) {
  const auto& linear = instruction.linear_in;
  if (!frame.any_absent()) return false;
  const bool all =
      std::all_of(linear.begin(), linear.end(), [&](SlotId root) { return frame.is_absent(root); });
  for (const SlotId slot : instruction.outputs) frame.set_absent(slot, all);
  if (all) return true;
  if (instruction.takes_absent) return false;
  for (const SlotId root : linear) {
    if (!frame.is_absent(root)) continue;
    const at::Tensor& meta = frame.plan().slots[root].meta;
    TORCH_CHECK_NOT_IMPLEMENTED(!frame.plan().slots[root].open,
                                "a gradient that is absent, and whose size depends on data, is needed");
    if (frame[root].defined()) {
      frame.slots()[root].zero_();
    } else {
      frame.bind(root,
                 at::empty_strided(meta.sizes(), meta.strides(), meta.options().device(frame.plan().device))
                     .zero_());
    }
    frame.set_absent(root, false);
  }
  return false;
}

void run(const Instruction& instruction, Frame& frame) {
  for (const SlotId slot : instruction.allocate) {
    const at::Tensor& meta = frame.plan().slots[slot].meta;
    frame.bind(slot,
               at::empty_strided(meta.sizes(), meta.strides(), meta.options().device(frame.plan().device)));
  }
  instruction.kernel(
      Args(frame.slots(), frame.held(), instruction.inputs.data(), instruction.outputs.data()));
  for (const SlotId slot : instruction.given) {
    if (frame[slot].defined()) frame.bind_views(slot);
    if (instruction.gives_absent && !frame[slot].defined()) frame.set_absent(slot, true);
  }
}

}  // namespace

void execute(const Program& program, Frame& frame) {
  execute(program, frame, 0, program.instructions.size());
}

void execute(const Program& program, Frame& frame, std::size_t begin, std::size_t end) {
  // Kernels run below autograd, but some (matmul_out) ask the grad mode
  // themselves before they write into an output.
  const at::NoGradGuard no_grad;
  for (std::size_t at = begin; at < end; ++at) {
    const Instruction& instruction = program.instructions[at];
    try {
      if (instruction.linear_in.empty() || !is_skipped(instruction, frame)) run(instruction, frame);
      for (const SlotId slot : instruction.release) frame.release(slot);
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
