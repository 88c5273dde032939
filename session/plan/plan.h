// Plan: every decision about one joint graph at one set of input layouts. Made once, run many times.
//
// A plan numbers the graph's values as slots, orders the instructions of the forward and of the backward
// program, and gives each intermediate a place in one arena that both programs share. It is immutable; frames
// hold a run's tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "session/lower/op.h"
#include "session/plan/result_layout.h"
#include "src/autodiff/gradient.h"
#include "src/base/result.h"

namespace rekindle::session {

using SlotId = std::uint32_t;
inline constexpr SlotId kAbsentSlot = 0;  // always an undefined tensor

enum class Storage : std::uint8_t {
  kAbsent,
  kInput,     // bound from the caller on each run
  kConstant,  // owned by the plan
  kArena,     // a fixed offset in the frame's arena
  kView,      // of another slot
  kFresh,     // allocated when it is first written: it leaves the session as an output or a gradient, or a
              // kernel keeps it
  kGiven,     // set by the kernel that computes it, to a tensor of its own
  kHeld,      // no tensor: what one kernel hands to another (a tape)
};

struct Slot {
  Storage storage = Storage::kAbsent;
  at::Tensor meta;                      // dtype, sizes and strides
  std::size_t offset = 0, bytes = 0;    // kArena
  SlotId base = kAbsentSlot;            // kView
  View view;                            // kView
  at::Tensor constant;                  // kConstant
  std::vector<SlotId> views;            // direct views of this slot, bound whenever it is
  const graph::Value* value = nullptr;  // null for scratch
  bool open = false;    // its sizes are known when it has been computed; `meta` then has the dtype only
  bool layout = false;  // holds a meta tensor with the layout of `value`, for those who read only that
};

struct Instruction {
  const graph::Node* node = nullptr;
  Kernel kernel;
  std::vector<SlotId> inputs, outputs;  // outputs, then scratch
  std::vector<SlotId> allocate;         // kFresh slots that this instruction writes first
  std::vector<std::size_t> in_place;    // positions in `inputs` whose memory output 0 may take over
  bool gives_absent = false;            // may leave given slots undefined: they count as absent
  bool takes_absent = false;            // absent inputs stay undefined
  std::vector<SlotId> linear_in;        // roots of inputs it is linear in: all absent, its outputs are too
  std::vector<SlotId> given;            // kGiven slots that this instruction sets
  std::vector<SlotId> release;          // slots that own memory and are not used after this instruction
};

struct Program {
  std::vector<Instruction> instructions;
  std::vector<SlotId> inputs;   // forward: every input; backward: the cotangents, in joint order
  std::vector<SlotId> outputs;  // forward: the outputs; backward: one per gradient_of
};

// A part of the backward program: once its first `end` instructions have run, these gradients are there and
// nothing in the program reads them any more.
struct Delivery {
  std::size_t end = 0;
  std::vector<std::size_t> gradients;  // positions in the program's outputs, in the order in which they leave
};
inline constexpr std::size_t kMaxDeliveries = 64;

struct Plan {
  std::shared_ptr<const autodiff::JointGraph> joint;  // the (restricted) graph that the plan runs
  std::vector<bool> present;                          // which cotangents the backward program takes
  at::Device device = at::kCPU;
  std::vector<at::Tensor> input_metas;  // layouts the plan is for, per forward input
  std::vector<Slot> slots;
  Program forward, backward;
  std::vector<Delivery> deliveries;  // of the backward, in order; every gradient is in one of them
  // Slots that the backward program reads and the forward program (or the
  // caller) wrote: inputs, fresh and arena roots.
  std::vector<SlotId> saved;
  // These first, then what else the forward leaves for backwards of other cotangents.
  std::vector<SlotId> kept;
  std::size_t arena_bytes = 0;
  std::size_t saved_bytes = 0;  // of saved arena slots

  // True when inputs with these layouts, on that device, can run on the plan. Meta tensors serve as layouts.
  bool fits(const at::Tensor* inputs, std::size_t count, at::Device on) const;
  // The slot that owns the memory of a slot: itself, or what it is a view of.
  SlotId root_of(SlotId slot) const {
    while (slots[slot].storage == Storage::kView) slot = slots[slot].base;
    return slot;
  }
  std::string describe() const;
};

struct PlanRequest {
  std::shared_ptr<const autodiff::JointGraph> joint;  // restricted to `present` when `record`
  std::vector<bool> present;
  bool record = false;  // false: forward only, nothing is saved
  // Names of forward values that must outlive the forward even if this backward does not read them: another
  // set of cotangents may.
  std::vector<std::string> keep;
  // Names of forward values that a backward computes again, unless they are small (rematerialize.h).
  std::unordered_set<std::string> recomputed;
  // Names of forward values of which a backward may read the layout.
  std::unordered_set<std::string> keep_layouts;
  const at::Tensor* inputs = nullptr;  // tensors or meta tensors: only layouts are read
  std::size_t input_count = 0;
  at::Device device = at::kCPU;
  // As of SessionOptions; null for none.
  const std::vector<ResultLayout>* output_layouts = nullptr;
  const std::vector<ResultLayout>* gradient_layouts = nullptr;
  const std::vector<std::size_t>* gradient_order = nullptr;
  bool defers = true;  // nodes whose sizes depend on data are lowered when they run; false: they are errors
};

// kUnsupported or kInvalidArgument, naming the node, when an op cannot be lowered for these layouts.
Result<std::shared_ptr<const Plan>> make_plan(const PlanRequest& request);

}  // namespace rekindle::session
