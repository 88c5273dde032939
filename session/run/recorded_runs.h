// RecordedRuns: runs of a frame whose launches an accelerator repeats by itself (device/launch_recorder.h).
// Internal to the session room.
//
// The first runs of a frame are as they are everywhere. One is then recorded: each part of the plan's
// programs is a sequence of launches, and so it stays in the runs that follow, where a part is one call. Of
// memory,
//
// - the arena's place is compared before each run: in another one, launches are recorded anew;
// - parameters and buffers are read where they are; one that has moved is copied, from the next recording on,
//   to where the launches read it;
// - what kernels give lies in the recorder's memory, which the frame's slots see and do not own;
// - outputs and gradients are copied out of it (Frame::delivered).
//
// A replay does not repeat what the host does meanwhile: instructions that call functions of the user or of
// libraries, whose sizes depend on data, or which turn out to wait for the device, run between the sequences.
#pragma once

#include <ATen/core/TensorBody.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "device/launch_recorder.h"
#include "session/plan/plan.h"

namespace rekindle::session {

class Frame;

class RecordedRuns {
 public:
  // `before`: what the frame has recorded in another one, whose memory somebody else still reads.
  explicit RecordedRuns(std::size_t slots, const RecordedRuns* before = nullptr)
      : replays_(before == nullptr ? 0 : before->replays_),
        recordings_(before == nullptr ? 0 : before->recordings_),
        in_recorder_(slots, false) {}

  // Runs the instructions [begin, end) of a program: as they are, or by a sequence. Throws what they throw.
  void run(const Program& program, Frame& frame, std::size_t begin, std::size_t end);
  // Returns whether a root lies in the recorder's memory, in the run that is in progress.
  bool holds(SlotId root) const { return in_recorder_[root]; }
  // The run is over.
  void end();
  // How many runs of this frame were replayed.
  std::size_t replays() const { return replays_; }

 private:
  enum class Mode : std::uint8_t { kPlain, kRecord, kReplay };
  // A root that a part reads and does not compute itself.
  struct External {
    SlotId root = kAbsentSlot;
    const void* place = nullptr;  // where the launches read it
    at::Tensor copy;              // defined: the place is this one's, into which it is copied
    const void* held = nullptr;   // of what is no tensor: which one it was
  };
  struct Given {
    SlotId root = kAbsentSlot;
    at::Tensor tensor;  // does not own its memory
    Held held;
  };
  struct Part {
    const Program* program = nullptr;
    std::size_t begin = 0, end = 0;
    std::unique_ptr<device::LaunchRecording> recording;
    std::vector<External> externals;
    std::vector<Given> given;
    std::vector<SlotId> released;
  };

  void begin_run(const Frame& frame);
  // Returns whether the host does nothing in an instruction but launch the same kernels each time.
  bool is_repeatable(const Instruction& instruction, const Plan& plan) const;
  void run_parts(const Program& program, Frame& frame, std::size_t begin, std::size_t end);
  void run_part(const Program& program, Frame& frame, std::size_t begin, std::size_t end);
  void record(const Program& program, Frame& frame, std::size_t begin, std::size_t end);
  void replay(Part& part, Frame& frame);
  static bool matches(const Part& part, Frame& frame);
  void take_copies(Part& part, Frame& frame);
  void take_given(Part& part, Frame& frame);
  void mark(const Part& part);
  // Every part is recorded anew in a later run.
  void discard() {
    is_stale_ = true;
    mode_ = Mode::kPlain;
  }
  void give_up(const std::string& why);

  Mode mode_ = Mode::kPlain;
  std::size_t plain_runs_ = 0, replays_ = 0, recordings_ = 0;
  bool is_stale_ = false, gave_up_ = false, any_ = false, is_counted_ = false;
  const void* arena_ = nullptr;
  std::optional<c10::Stream> stream_;
  std::unique_ptr<device::LaunchRecorder> recorder_;
  std::vector<Part> parts_;
  std::unordered_set<const graph::Node*> waiting_;      // those that could not be recorded
  std::unordered_set<SlotId> moved_;                    // inputs that do not stay where they are
  std::vector<std::pair<SlotId, const void*>> inputs_;  // of the run before
  std::vector<at::Tensor> copied_;                      // copies that this run has made
  std::vector<bool> in_recorder_;                       // by root
};

}  // namespace rekindle::session
