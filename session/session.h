// Session: runs a joint graph. Plans are made per input layout and reused.
//
// The graph and the options stay as they are; the functions that it calls, and the replay, may be replaced
// between forwards. A Session owns its graph, its plans (an LRU) and their frames. forward() takes the live
// tensors of the module as inputs; it never stores a parameter's values. Thread rule: forward() may be called
// from several threads; each call has a frame of its own until its backward has run or its outputs are gone.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "session/plan/memory_budget.h"
#include "session/plan/memory_plan.h"
#include "session/plan/result_layout.h"
#include "src/autodiff/gradient.h"
#include "src/base/result.h"

namespace at {
class Tensor;
}
namespace rekindle::device {
class FirstTouch;
}

namespace rekindle::session {

// Nodes of eager's autograd graph that have saved tensors: the cotangents (positions in the joint graph's
// cotangent_of) that lead to them, and the forward inputs that they lead to. See saved_groups.h.
struct SavedGroup {
  std::vector<std::size_t> cotangents, inputs;
};

// A tensor that such nodes, between these cotangents and inputs, have saved and that others may write to: the
// forward's input of this number or, past these, the output or, past these, the constant (see set_constants).
// A later write is an error of their backward.
struct SavedTensor {
  std::size_t tensor = 0;
  SavedGroup read_by;
};

// Each has memory of its own for what its kernels give, for as long as it lives.
inline constexpr std::size_t kMostRecordedPlans = 4;

struct SessionOptions {
  // Plans kept per session: so many, and more as long as all have at most so many instructions (some 2 KB
  // each), up to 1,024. The least recently used goes first.
  std::size_t max_plans = 16;
  std::size_t max_instructions = 1 << 15;
  // Per cotangent of the joint graph: whether the first backward is expected to be given it. Empty: all of
  // them. A wrong guess costs one more plan and one copy of the saved values, in the first backward only.
  std::vector<bool> expected_cotangents;
  // Per forward output, and per forward input for its gradient; those past the end lie as they are computed.
  std::vector<ResultLayout> output_layouts, gradient_layouts;
  // Forward inputs, in the order in which their gradients have to leave; the others leave as soon as they are
  // computed.
  std::vector<std::size_t> gradient_order;
  // Which backwards of one forward exclude each other; not known: all of them.
  std::optional<std::vector<SavedGroup>> saved_groups;
  // Forward inputs that eager saves as they are given, not as a view or a copy: memory that one gets after
  // the forward (`p.data = q`) is what the backward reads. Of the others it reads what they had in the
  // forward.
  std::vector<std::size_t> saved_as_given;
  // Forward inputs that eager saves as given and as a view or a copy, too. A backward that reads one throws
  // where it has got new memory since.
  std::vector<std::size_t> saved_both_ways;
  // Inputs, outputs and constants that eager's backward reads. The session sees writes to what its own
  // backward reads anyway.
  std::vector<SavedTensor> saved_tensors;
  // Per cotangent: the others whose results lie between its result and the inputs, in eager. Empty: not
  // known.
  std::vector<std::vector<std::size_t>> inner_results;
  // Whether nodes whose sizes depend on data are lowered when they run;
  // otherwise there is no plan for such a graph.
  bool defers = true;
  // For a step's activations: forward values are made again in the backward to keep it. Where it cannot be
  // kept, one warning names the least that can be had, and plans take that.
  // Its `time` is spent where there is no budget.
  MemoryBudget memory_budget = {};
  // Takes the place of the budget. Kinds that the graph has not got are one warning.
  std::optional<MemoryPlan> memory_plan = std::nullopt;
  // True lets forwards that record leave out rows of tokens on which the loss does not depend, where the
  // graph says which these are (src/padding). Results with a row for each token are zero in those rows.
  bool padding_elimination = false;
  // True lets an accelerator compute pointwise ops that follow from each other as one kernel, which is
  // compiled while the first steps run (device/kernel_compiler.h).
  bool fuse = false;
  // True lets an accelerator repeat the launches of a run by itself: of so many plans as
  // kMostRecordedPlans, and of one run at a time of each (session/run/recorded_runs.h).
  bool record_launches = false;
  // The last so many outputs are what the graph writes to buffers and inputs: no row of them is left out.
  std::size_t written_results = 0;
};

// Of a backward in which gradients of results are asked for, or changed by hooks: which results these are, by
// cotangent. What comes to one from other results does not go on: it goes on with its own cotangent only.
// `ending`: what comes to these is asked for, and not the gradients of the inputs. `undefined`: results to
// which the backward comes without a gradient, as PyTorch's engine has undefined ones.
struct Cut {
  std::vector<std::size_t> results;
  bool ending = false;
  std::vector<std::size_t> undefined;
};

// The gradients of one call, themselves differentiable: what a backward with create_graph=True, under vmap,
// with a cut or with sparse cotangents runs instead of the graph.
// `inputs`: forward's. `random_states`: device::RandomStates before that forward; empty when the graph draws
// nothing. `cotangents`: in joint order, undefined where there is none. Returns one tensor per
// gradient_of or, if the cut is ending, per result of it; undefined for no gradient.
using Replay = std::function<std::vector<at::Tensor>(
    const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& random_states,
    const std::vector<at::Tensor>& cotangents, const Cut& cut)>;

// Code that the graph calls by number; see host_function.h.
class HostFunction;
using HostFunctions = std::vector<std::shared_ptr<HostFunction>>;

struct SessionStats {
  std::size_t plans = 0;          // alive now
  std::size_t plans_made = 0;     // since the session was made
  double plan_seconds = 0;        // spent making them
  std::size_t arena_bytes = 0;    // of the plan used last: all intermediates of one forward and backward
  std::size_t saved_bytes = 0;    // of the plan used last: what the forward leaves for the backward
  std::size_t instructions = 0;   // of the plan used last
  std::size_t recomputed = 0;     // of these, the ones that run a second time to keep the memory budget
  std::size_t frames = 0;         // of the plan used last: forwards that were in flight at once
  std::size_t fused_kernels = 0;  // of the plan used last: kernels of several ops that are in use
  std::size_t replayed_runs = 0;  // forwards of the plans alive now whose launches the device repeated
};

struct PaddingStats {
  std::size_t calls = 0;         // that asked which rows they need
  std::size_t packed_calls = 0;  // of these, those that left rows out
  double density = 0;            // of the last of them: the share of the rows that it needs,
  double counted_density = 0;    // and of those that losses and selections read
};

struct MemoryAccount;

class Session : public std::enable_shared_from_this<Session> {
 public:
  // kUnsupported, naming node and op, when an op of the graph has no lowering.
  static Result<std::shared_ptr<Session>> create(autodiff::JointGraph joint, SessionOptions options = {});
  ~Session();

  // Runs the forward graph. `inputs`: one defined tensor per forward input, all on one device, of the dtypes
  // the graph was exported with. Returns one new tensor per forward output. With `record` and gradients in
  // the joint graph, those outputs that have a cotangent are connected to the autograd graph of the inputs in
  // gradient_of. Throws c10::Error (seen from Python as RuntimeError) naming the node, its op, its source and
  // its input shapes.
  std::vector<at::Tensor> forward(std::span<const at::Tensor> inputs, bool record);

  // Makes the plan for these inputs without running it (start-up, tests). Same errors as forward().
  void prepare(std::span<const at::Tensor> inputs, bool record);

  // Where the bytes of the plan for these inputs go; makes the plan where there is none, and runs nothing.
  // Same errors as forward().
  MemoryAccount memory(std::span<const at::Tensor> inputs, bool record);

  // What the graph's calls of host functions mean, for forwards from now on.
  void set_functions(HostFunctions functions);
  // The tensors whose numbers the graph has as constants and that saved_tensors numbers, for forwards from
  // now on. Keeps their version counters alive, not them.
  void set_constants(const std::vector<at::Tensor>& constants);
  // Memory for the gradients of the next forward that records; what they have not taken is freed after its
  // backward, or with its outputs.
  void set_first_touch(std::shared_ptr<device::FirstTouch> memory);
  // For forwards from now on. Without one, a backward with create_graph=True or under vmap is an error, and
  // one that looks for anomalies looks at the gradients alone.
  void set_replay(Replay replay);
  // Whether an autograd node that was made with the replay is alive.
  bool may_replay() const;

  // Text of the plan used last: one line per instruction with op, storage, offsets and sizes.
  std::string describe_plan() const;

  // Counts and times of this session and of those that it made to leave rows out; the last plan is its own.
  SessionStats stats() const;
  // nullopt without padding elimination.
  std::optional<PaddingStats> padding() const;
  const autodiff::JointGraph& joint() const;

 private:
  struct Impl;
  struct Recorded;
  std::vector<at::Tensor> run(std::span<const at::Tensor> inputs, bool record, const Recorded& recorded);
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The names of every op the session can run, as "domain::Op" ("MatMul" for ONNX's own).
std::vector<std::string> supported_ops();

}  // namespace rekindle::session
