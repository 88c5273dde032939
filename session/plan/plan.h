// Plan: every decision about one joint graph at one set of input layouts. Made once, run many times.
//
// A plan numbers the graph's values as slots, orders the instructions of the forward and of the backward
// program, and gives each intermediate a place in one arena that both programs share. It is immutable; frames
// hold a run's tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "session/lower/op.h"
#include "session/plan/memory_budget.h"
#include "session/plan/memory_plan.h"
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
  at::Tensor meta;                         // dtype, sizes and strides
  std::size_t offset = 0, bytes = 0;       // kArena
  SlotId base = kAbsentSlot;               // kView
  View view;                               // kView
  at::Tensor constant;                     // kConstant
  std::vector<SlotId> views;               // direct views of this slot, bound whenever it is
  const graph::Value* value = nullptr;     // null for scratch
  const graph::Value* taken_by = nullptr;  // the value that took the memory over, as a view: it is there last
  bool open = false;    // its sizes are known when it has been computed; `meta` then has the dtype only
  bool layout = false;  // holds a meta tensor with the layout of `value`, for those who read only that

  // Returns the value that the memory holds when all instructions have run.
  const graph::Value* last_value() const { return taken_by != nullptr ? taken_by : value; }
};

// How one instruction of the backward handles gradients that are absent: None in eager, where zeros would not
// do. An autograd Function f may return None as the gradient of its input x: f's instruction `may_give` it.
// An instruction that multiplies that by a weight is `linear_in` it, and its result is absent, too; a sum
// with another gradient takes zeros for it, and a second Function's backward, which `takes` it, gets no
// tensor.
struct Absence {
  bool may_give = false;  // may leave slots of `given` undefined
  bool takes = false;     // runs with absent inputs undefined; otherwise they are filled with zeros before
  std::vector<SlotId> linear_in;  // roots of inputs: where all are absent, it is not run, and its outputs are
  bool runs = false;              // even then: it has gradients of its own to add
};

class FusedKernel;

// `node` to `absence` are set when the node is lowered, the rest by later stages (stages.h).
struct Instruction {
  const graph::Node* node = nullptr;  // null: it copies a result
  Kernel kernel;
  Kernel again;                         // as of Lowering
  std::vector<SlotId> inputs, outputs;  // outputs, then scratch
  std::vector<std::size_t> in_place;    // positions in `inputs` whose memory output 0 may take over
  std::vector<fusion::Step> pointwise;  // what `kernel` computes of each element, where several may be fused
  Absence absence;
  std::shared_ptr<FusedKernel>
      fused;  // fuse_pointwise(): `kernel` is that of several nodes, of which this is the last
  std::vector<SlotId> allocate;  // place_slots(): kFresh slots that this instruction writes first
  std::vector<SlotId> given;     // schedule(): its outputs of kGiven
  std::vector<SlotId> release;   // schedule(): slots that own memory and are not used after it
};

// The op types of its nodes, "Mul+Tanh", or "Copy".
std::string ops_of(const Instruction& instruction);

struct Program {
  std::vector<Instruction> instructions;
  std::vector<SlotId> inputs;   // forward: every input; backward: the cotangents, in joint order
  std::vector<SlotId> outputs;  // forward: the outputs; backward: one per gradient_of
};

// The slots, and the two programs over them.
struct Programs {
  std::vector<Slot> slots = std::vector<Slot>(1);  // the first is kAbsentSlot
  Program forward, backward;

  // The slot that owns the memory of a slot: itself, or what it is a view of.
  SlotId root_of(SlotId slot) const {
    while (slots[slot].storage == Storage::kView) slot = slots[slot].base;
    return slot;
  }
  SlotId add(Storage storage, at::Tensor meta, const graph::Value* value);
  // A slot whose sizes are known when it has been computed.
  SlotId add_open(const graph::Value* value);
  // The instructions of the forward, then those of the backward. Valid until one of them gets another.
  std::vector<Instruction*> timeline();
};

// A part of the backward program: once its first `end` instructions have run, these gradients are there and
// nothing in the program reads them any more.
struct Delivery {
  std::size_t end = 0;
  std::vector<std::size_t> gradients;  // positions in the program's outputs, in the order in which they leave
  std::vector<std::uint32_t> reads;    // positions in Plan::kept that its instructions read, ascending
};
inline constexpr std::size_t kMaxDeliveries = 64;

// An input that a backward reads in the memory of the forward, though it may have got other memory since
// (`p.data = q`).
struct RememberedInput {
  SlotId slot = kAbsentSlot;
  bool stays = false;  // it must not have got any; see SessionOptions::saved_both_ways
};

// Says what the backward program computes again, so that a step takes less memory (session/plan/budget.h).
// The first three are 0 in a plan that has no budget.
struct Recomputation {
  std::size_t activation_bytes = 0;       // what the plan takes
  std::size_t bytes_without = 0;          // what it would take
  std::size_t budget_bytes = 0;           // what it may take
  std::size_t instructions = 0;           // that run again
  double share = 0;                       // of the step's estimated time that these add
  std::vector<std::string> dropped;       // forward values that the forward does not leave
  std::unordered_set<std::string> reads;  // values that instructions read that run again
  std::string unmet;                      // kinds that the memory plan asks for in vain; for messages
};

struct Plan : Programs {
  std::shared_ptr<const autodiff::JointGraph> joint;  // the (restricted) graph that the plan runs
  std::vector<bool> present;                          // which cotangents the backward program takes
  at::Device device = at::kCPU;
  std::vector<at::Tensor> input_metas;  // layouts the plan is for, per forward input
  std::vector<Delivery> deliveries;     // of the backward, in order; every gradient is in one of them
  // Slots that the backward program reads and the forward program (or the
  // caller) wrote: inputs, fresh and arena roots.
  std::vector<SlotId> saved;
  // These first, then what else the forward leaves for backwards of other cotangents.
  std::vector<SlotId> kept;
  // The inputs among `kept` that a backward reads in the memory that they had in the forward, in their order.
  std::vector<RememberedInput> remembered;
  std::size_t arena_bytes = 0;
  std::size_t saved_bytes = 0;  // of saved slots in the arena, and of those that kernels give
  Recomputation recomputation;

  // True when inputs with these layouts, on that device, can run on the plan. Meta tensors serve as layouts.
  bool fits(std::span<const at::Tensor> inputs, at::Device on) const;
  std::string describe() const;
};

// Values up to this size are kept for the backward rather than computed again, unless a budget asks for that:
// an instruction costs more.
inline constexpr std::size_t kMaxKeptBytes = 256 << 10;

// Forward values, by name, that backwards of any cotangents may read: they outlive the forward even where the
// plan's own backward does not read them.
struct KeptValues {
  std::unordered_set<std::string> read;
  std::unordered_set<std::string> recomputed;  // computed again, unless they are small (rematerialize.h)
  std::unordered_set<std::string> layouts;     // of which the layout is read

  // Returns whether a backward would compute the slot's value again if it were larger.
  bool is_kept_small(const Slot& slot) const;
  bool is_read(const Slot& slot) const {
    return slot.value != nullptr && (read.contains(slot.value->name()) || is_kept_small(slot));
  }
};
inline const KeptValues kNothingKept;

struct PlanRequest {
  std::shared_ptr<const autodiff::JointGraph> joint;  // restricted to `present` when `record`
  std::vector<bool> present;
  bool record = false;  // false: forward only, nothing is saved
  const KeptValues* kept = &kNothingKept;
  std::span<const at::Tensor> inputs;  // tensors or meta tensors: only layouts are read
  at::Device device = at::kCPU;
  // As of SessionOptions; null for none.
  const std::vector<ResultLayout>* output_layouts = nullptr;
  const std::vector<ResultLayout>* gradient_layouts = nullptr;
  const std::vector<std::size_t>* gradient_order = nullptr;
  const std::vector<std::size_t>* saved_as_given = nullptr;
  const std::vector<std::size_t>* saved_both_ways = nullptr;
  MemoryBudget budget;
  const MemoryPlan* memory_plan = nullptr;  // decides instead of the budget; null for none
  // Values that this plan must drop: its backward is another part of that of a forward which has dropped
  // them. Null: the budget, or the memory plan, decides.
  const std::vector<std::string>* dropped = nullptr;
  // Returns whether the caller has said what is computed again: by a budget, a level, a plan or an earlier
  // plan.
  bool decides_recomputation() const {
    return budget || budget.anything || dropped != nullptr || memory_plan != nullptr;
  }
  bool fuse = false;   // pointwise instructions of an accelerator become one kernel (fuse_pointwise.h)
  bool defers = true;  // nodes whose sizes depend on data are lowered when they run; false: they are errors
};

// kUnsupported or kInvalidArgument, naming the node, when an op cannot be lowered for these layouts.
Result<std::shared_ptr<const Plan>> make_plan(const PlanRequest& request);

}  // namespace rekindle::session
