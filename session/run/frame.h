// Frame: the tensors of one run of a plan, and the arena that holds the
// intermediates.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "device/arena_pool.h"
#include "session/plan/plan.h"
#include "session/run/recorded_runs.h"

namespace rekindle::session {

// A value that a forward left for its backwards, outside of any frame.
struct SavedValue {
  at::Tensor tensor;
  Held held;
  std::vector<std::string> read;         // names of the values that are it, or views of it
  std::optional<std::uint32_t> version;  // of the tensor then, where somebody else may write to it
  std::shared_ptr<RecordedRuns> memory;  // keeps the tensor's memory; null: the tensor does
  bool is_taken = false;  // the tensor has the sizes and strides of what was in its memory before
};

// By the value's name, and whether it is its layout only.
class SavedValues : public std::map<std::pair<std::string, bool>, SavedValue> {
 public:
  // As Frame's.
  void check_versions() const;
  // Those that hold the values `names`.
  SavedValues only(const std::unordered_set<std::string>& names) const;
};

class Frame {
 public:
  // Prepares a tensor for every constant slot and its views; take_arena() comes before the first run.
  explicit Frame(std::shared_ptr<const Plan> plan);
  ~Frame();
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  const Plan& plan() const { return *plan_; }
  const std::shared_ptr<const Plan>& shared_plan() const { return plan_; }
  at::Tensor* slots() { return slots_.data(); }
  Held* held() { return held_.data(); }
  // Takes an arena from the device's pool for the intermediates, or gives it back, with what it holds. Taking
  // throws c10::OutOfMemoryError.
  void take_arena();
  void give_back_arena();
  // Lets the device's current stream use the arena: before each part of a program that is run on it.
  void enter_stream() { arena_->order.enter(arena_->memory); }
  const at::Tensor& operator[](SlotId slot) const { return slots_[slot]; }
  // The tensors of these slots, for a caller who may keep them: copies of those that the next run overwrites.
  std::vector<at::Tensor> delivered(const std::vector<SlotId>& slots) const;
  // From the next run on, launches may be recorded, and replayed.
  void record_launches() { recorded_ = std::make_shared<RecordedRuns>(slots_.size(), recorded_.get()); }
  // Null where they are not.
  RecordedRuns* recorded_runs() const { return recorded_.get(); }
  const void* arena_place() const { return place_; }

  // Sets a slot and, from it, its views.
  void bind(SlotId slot, at::Tensor tensor);
  // Sets the views of a slot that a kernel has set.
  void bind_views(SlotId slot);
  // Empties the root of a slot and all that views it.
  void release(SlotId slot);
  // Whether a root has no value in this run: a gradient that nobody gave.
  bool is_absent(SlotId root) const { return !absent_.empty() && absent_[root]; }
  bool any_absent() const { return !absent_.empty(); }
  void set_absent(SlotId root, bool absent);
  // These instructions are not run, once; what they give is absent.
  void leave_out(std::vector<const Instruction*> instructions) { left_out_ = std::move(instructions); }
  bool leaves_out(const Instruction& instruction) const {
    return std::ranges::find(left_out_, &instruction) != left_out_.end();
  }
  // Drops whatever slots outside the arena hold, so that a pooled frame keeps nothing of the caller's alive.
  void unbind();
  // Keeps this until the frame is unbound.
  void keep(std::shared_ptr<const void> held) { kept_ = std::move(held); }
  // Notes the versions of the kept tensors that are not in the arena, in which an in-place edit before the
  // backward shows, and the memory of the plan's remembered inputs.
  void record_saved();
  // Lets a backward read remembered inputs in the memory that they had, others in that which they have now
  // (after `p.data = q`). Throws c10::Error where what one has now is laid out otherwise.
  void bind_saved();
  // Throws c10::Error, in eager's words, when a recorded tensor was modified in place that the instructions
  // of a delivery of the plan's own backward read.
  void check_versions(const Delivery& delivery) const;
  // What the forward left of the values `names`, and what these are views of. `own`: with a copy of what is
  // in the arena; otherwise it is valid as long as the frame is not run.
  SavedValues saved_values(const std::unordered_set<std::string>& names, bool own) const;
  // A frame with its own copy of everything the backward reads: for a backward that must be repeatable.
  std::unique_ptr<Frame> copy_for_backward() const;
  // Takes the saved values of a forward of the same graph, by name: a copy in the arena, another handle
  // elsewhere.
  void take_saved(const SavedValues& values);

 private:
  struct Memory {
    c10::Storage storage;
    std::int64_t offset = 0;  // elements
  };

  void take(SlotId slot, const at::Tensor& tensor, const Held& held);
  // Returns whether a remembered input has other memory now.
  bool is_exchanged(std::size_t which) const;
  // Returns a remembered input in the memory that it had, with its version counter. Throws c10::Error where
  // it must have that still.
  at::Tensor remembered(std::size_t which) const;
  // Returns the tensor that a backward reads in a slot. `own`: it stays so whatever memory an input gets
  // later.
  at::Tensor saved(SlotId slot, bool own) const;
  // Returns the recording whose memory the root's tensor lies in; null if the tensor owns its memory.
  std::shared_ptr<RecordedRuns> memory_of(SlotId root) const;
  // Empties a slot and all that views it.
  void release_views(SlotId slot);

  std::shared_ptr<const Plan> plan_;
  std::unique_ptr<device::Arena> arena_;
  const void* place_ = nullptr;  // where the arena was that the slots see
  std::vector<at::Tensor> slots_;
  std::vector<Held> held_;                                         // per slot; empty but for kHeld ones
  std::vector<bool> absent_;                                       // per slot; empty until one is
  std::vector<const Instruction*> left_out_;                       // see leave_out()
  std::vector<std::pair<std::uint32_t, std::uint32_t>> versions_;  // by position in Plan::kept, ascending
  std::vector<Memory> memories_;  // of the plan's remembered inputs, in their order
  std::shared_ptr<RecordedRuns> recorded_;
  std::shared_ptr<const void> kept_;
  std::vector<std::shared_ptr<RecordedRuns>> borrowed_;  // of frames whose values this one has taken
};

// Runs a program on a frame whose inputs are bound. Throws c10::Error with
// the node, its op, source and input shapes.
void execute(const Program& program, Frame& frame);
// The instructions from `begin` up to `end`.
void execute(const Program& program, Frame& frame, std::size_t begin, std::size_t end);
// The same one by one, for those who have set the device and ordered its streams.
void run_instructions(const Program& program, Frame& frame, std::size_t begin, std::size_t end);

}  // namespace rekindle::session
