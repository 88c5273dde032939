#include "session/run/recorded_runs.h"

#include <ATen/ops/empty_strided.h>
#include <ATen/record_function.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>

#include "device/copies.h"
#include "device/memory.h"
#include "session/ops/host.h"
#include "session/run/frame.h"
#include "session/run/fused_kernel.h"
#include "session/run/program_part.h"
#include "src/base/log.h"
#include "src/graph/torch_node.h"

namespace rekindle::session {
namespace {

constexpr std::size_t kRecordings = 8;  // of a frame; more of them say that its memory never stays in place
constexpr std::size_t kWaiting = 16;    // instructions of a plan that wait for the device, at most

c10::Stream stream_now(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

bool is_profiled() { return at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION).has_value(); }

bool is_elsewhere(const at::Tensor& tensor, at::Device device) {
  return tensor.defined() && tensor.device() != device;
}

// Whether no kernel is still being compiled, or to be tried.
bool are_kernels_settled(const Plan& plan) {
  const auto is_settled = [](const Instruction& each) {
    return each.fused == nullptr || each.fused->is_settled();
  };
  return std::ranges::all_of(plan.forward.instructions, is_settled) &&
         std::ranges::all_of(plan.backward.instructions, is_settled);
}

// What slots hold, to be put back.
struct SlotsBefore {
  std::vector<at::Tensor> tensors;
  std::vector<Held> held;

  explicit SlotsBefore(Frame& frame)
      : tensors(frame.slots(), frame.slots() + frame.plan().slots.size()),
        held(frame.held(), frame.held() + frame.plan().slots.size()) {}
  void put_back(Frame& frame) {
    std::ranges::move(tensors, frame.slots());
    std::ranges::move(held, frame.held());
  }
};

}  // namespace

bool RecordedRuns::is_repeatable(const Instruction& instruction, const Plan& plan) const {
  const auto is_open = [&](SlotId slot) { return plan.slots[slot].open; };
  if (std::ranges::any_of(instruction.inputs, is_open) || std::ranges::any_of(instruction.outputs, is_open))
    return false;
  const graph::Node* node = instruction.node;
  if (node == nullptr) return true;
  if (waiting_.contains(node)) return false;
  if (graph::is_torch(*node)) return node->op_type().starts_with("aten.");
  if (!node->is("TorchGradient", graph::kRekindleDomain)) return true;
  const graph::Node* taped = node->input(graph::gradient_cotangents(*node))->producer();
  return taped != nullptr && taped->op_type().starts_with("aten.") && !waiting_.contains(taped);
}

void RecordedRuns::run(const Program& program, Frame& frame, std::size_t begin, std::size_t end) {
  if (&program == &frame.plan().forward && begin == 0) begin_run(frame);
  run_parts(program, frame, begin, end);
}

void RecordedRuns::run_parts(const Program& program, Frame& frame, std::size_t begin, std::size_t end) {
  if (mode_ == Mode::kPlain) return run_instructions(program, frame, begin, end);
  for (std::size_t at = begin; at < end;) {
    const bool repeatable = is_repeatable(program.instructions[at], frame.plan());
    std::size_t next = at + 1;
    while (next < end && is_repeatable(program.instructions[next], frame.plan()) == repeatable) ++next;
    repeatable ? run_part(program, frame, at, next) : run_instructions(program, frame, at, next);
    at = next;
  }
}

void RecordedRuns::begin_run(const Frame& frame) {
  const Plan& plan = frame.plan();
  mode_ = Mode::kPlain;
  is_counted_ = false;
  if (gave_up_) return;
  if (is_stale_) {
    parts_.clear();
    recorder_.reset();
    is_stale_ = false;
  }
  std::vector<std::pair<SlotId, const void*>> inputs;
  for (const SlotId slot : plan.forward.inputs) {
    if (is_elsewhere(frame[slot], plan.device))
      return give_up("an input is on " + frame[slot].device().str());
    inputs.emplace_back(slot, frame[slot].const_data_ptr());
  }
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs[i] != inputs_[i]) moved_.insert(inputs[i].first);
  }
  inputs_ = std::move(inputs);
  if (!parts_.empty()) {
    if (stream_ != stream_now(plan.device)) return;
    if (arena_ != frame.arena_place()) return discard();
    mode_ = is_profiled() ? Mode::kPlain : Mode::kReplay;
    return;
  }
  const auto recorders = device::launch_recorders(plan.device.type());
  if (recorders == nullptr) return give_up("nothing records those of " + plan.device.str());
  if (plain_runs_++ < recorders->runs_before || is_profiled() || !are_kernels_settled(plan)) return;
  if (recordings_++ == kRecordings) return give_up("the memory that it reads never stays in place");
  recorder_ = recorders->make(plan.device);
  arena_ = frame.arena_place();
  stream_ = stream_now(plan.device);
  mode_ = Mode::kRecord;
}

void RecordedRuns::run_part(const Program& program, Frame& frame, std::size_t begin, std::size_t end) {
  const bool is_regular = !frame.any_absent() && stream_ == stream_now(frame.plan().device);
  if (mode_ == Mode::kRecord && is_regular) return record(program, frame, begin, end);
  if (mode_ == Mode::kReplay) {
    const auto part = std::ranges::find_if(parts_, [&](const Part& each) {
      return each.program == &program && each.begin == begin && each.end == end;
    });
    if (is_regular && part != parts_.end() && matches(*part, frame)) return replay(*part, frame);
    discard();
  }
  run_instructions(program, frame, begin, end);
}

void RecordedRuns::record(const Program& program, Frame& frame, std::size_t begin, std::size_t end) {
  const ProgramPart roots = part_of(frame.plan(), program, begin, end);
  Part part{&program, begin, end, nullptr, {}, {}, roots.released};
  for (const SlotId root : roots.read) part.externals.push_back({root, nullptr, {}});
  for (const SlotId root : roots.computed) part.given.push_back({root, {}, {}});
  SlotsBefore before(frame);
  std::size_t next = end;  // the instruction that runs
  try {
    take_copies(part, frame);
    part.recording = recorder_->record([&] {
      for (next = begin; next < end; ++next) run_instructions(program, frame, next, next + 1);
    });
    TORCH_CHECK_NOT_IMPLEMENTED(!frame.any_absent(), "a gradient is absent");
    for (const External& external : part.externals) {  // the caller's own tensors again
      if (external.copy.defined() && frame[external.root].defined())
        frame.bind(external.root, before.tensors[external.root]);
    }
    take_given(part, frame);
  } catch (const std::exception& error) {
    before.put_back(frame);
    const graph::Node* node = next < end ? program.instructions[next].node : nullptr;
    const bool ran_out = dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr;
    if (node != nullptr && !ran_out && waiting_.size() < kWaiting) {
      waiting_.insert(node);
    } else {
      const auto* known = dynamic_cast<const c10::Error*>(&error);
      give_up(known == nullptr ? error.what() : known->what_without_backtrace());
    }
    return run_parts(program, frame, begin, end);
  }
  part.recording->replay();
  mark(part);
  parts_.push_back(std::move(part));
}

// Says where the part reads what others have computed, and makes the copies that it reads instead.
void RecordedRuns::take_copies(Part& part, Frame& frame) {
  const Plan& plan = frame.plan();
  std::vector<at::Tensor> to, from;
  for (External& external : part.externals) {
    const SlotId root = external.root;
    const at::Tensor& tensor = frame[root];
    if (plan.slots[root].storage == Storage::kHeld) {
      TORCH_CHECK_NOT_IMPLEMENTED(holds(root), "a tape comes from what is not recorded");
      external.held = frame.held()[root].get();
      continue;
    }
    TORCH_CHECK_NOT_IMPLEMENTED(tensor.defined() && !is_elsewhere(tensor, plan.device),
                                "a value is not on the device");
    const bool is_cotangent = std::ranges::find(plan.backward.inputs, root) != plan.backward.inputs.end();
    const bool stays =
        plan.slots[root].storage == Storage::kInput ? !is_cotangent && !moved_.contains(root) : holds(root);
    if (stays) {
      external.place = tensor.const_data_ptr();
      continue;
    }
    const auto known = std::ranges::find_if(parts_, [&](const Part& other) {
      return std::ranges::any_of(other.externals, [&](const External& theirs) {
        return theirs.root == root && theirs.copy.defined();
      });
    });
    if (known != parts_.end()) {
      external.copy = std::ranges::find(known->externals, root, &External::root)->copy;
    } else {
      external.copy = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options());
      to.push_back(external.copy);
      from.push_back(tensor);
    }
    external.place = external.copy.const_data_ptr();
    frame.bind(root, external.copy);
  }
  if (!to.empty()) device::copy_all(to, from);
  copied_.insert(copied_.end(), to.begin(), to.end());
}

// From here on the slots see memory of the recorder, and do not own it: so a later part, or the next run, may
// use it again, and a caller who keeps such a tensor would be a mistake that holds() tells.
void RecordedRuns::take_given(Part& part, Frame& frame) {
  const Plan& plan = frame.plan();
  std::erase_if(part.given, [&](Given& given) {
    if (plan.slots[given.root].storage == Storage::kHeld) {
      given.held = frame.held()[given.root];
      return given.held == nullptr;
    }
    const at::Tensor& tensor = frame[given.root];
    if (!tensor.defined()) return true;
    TORCH_CHECK_NOT_IMPLEMENTED(tensor.device() == plan.device && !tensor.is_conj() && !tensor.is_neg(),
                                "a result is not plain memory of the device");
    given.tensor = device::tensor_over(tensor, 0, tensor);
    return false;
  });
}

bool RecordedRuns::matches(const Part& part, Frame& frame) {
  return std::ranges::all_of(part.externals, [&](const External& external) {
    if (external.held != nullptr) return frame.held()[external.root].get() == external.held;
    const at::Tensor& tensor = frame[external.root];
    return tensor.defined() && (external.copy.defined() || tensor.const_data_ptr() == external.place);
  });
}

void RecordedRuns::replay(Part& part, Frame& frame) {
  std::vector<at::Tensor> to, from;
  for (const External& external : part.externals) {
    if (!external.copy.defined()) continue;
    const auto is_same = [&](const at::Tensor& copy) { return copy.is_same(external.copy); };
    if (std::ranges::any_of(copied_, is_same)) continue;
    to.push_back(external.copy);
    from.push_back(frame[external.root]);
  }
  if (!to.empty()) device::copy_all(to, from);
  copied_.insert(copied_.end(), to.begin(), to.end());
  part.recording->replay();
  replays_ += std::exchange(is_counted_, true) ? 0 : 1;
  for (const SlotId root : part.released) frame.release(root);
  for (const Given& given : part.given) {
    if (given.held != nullptr) {
      frame.held()[given.root] = given.held;
    } else {
      frame.bind(given.root, given.tensor);
    }
  }
  mark(part);
}

void RecordedRuns::mark(const Part& part) {
  for (const Given& given : part.given) in_recorder_[given.root] = true;
  any_ = any_ || !part.given.empty();
}

void RecordedRuns::end() {
  mode_ = Mode::kPlain;
  copied_.clear();
  if (gave_up_ && recorder_ != nullptr) {
    parts_.clear();
    recorder_.reset();
  }
  if (std::exchange(any_, false)) in_recorder_.assign(in_recorder_.size(), false);
}

void RecordedRuns::give_up(const std::string& why) {
  gave_up_ = true;
  mode_ = Mode::kPlain;
  log_warning("cuda_graphs: launches are not recorded, and are made one by one: " + why);
}

}  // namespace rekindle::session
