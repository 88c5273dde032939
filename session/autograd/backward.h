// What one recorded forward leaves for its backwards, and their runs; called by the nodes of
// backward_chain.h.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "session/autograd/arrivals.h"
#include "session/autograd/saved_versions.h"
#include "session/plan/plan_cache.h"
#include "session/run/frame_pool.h"
#include "src/base/mutex.h"

namespace rekindle::session {

// What a differentiable backward of one forward needs beside its frame; see Replay.
struct ReplayState {
  std::shared_ptr<const Replay> replay;   // null: none was given
  std::vector<at::Tensor> random_states;  // see device/random_state.h; empty: the graph draws nothing
  InputState inputs;                      // the replay reads them again
};

// What one forward left for its backwards, and how far each backward in flight is. Shared by a chain's nodes.
//
// What was left is in the forward's frame or, once a backward of some of the outputs has consumed that, in
// values of their own, for as long as another backward may read them.
class Backward {
 public:
  using Flags = std::vector<bool>;

  Backward(std::shared_ptr<PlanCache> plans, FramePool::Handle frame, SavedVersions versions,
           ReplayState replay);

  // Lets backwards throw c10::Error, in eager's words, where they read a tensor of `written` that was written
  // once more since; see SavedVersions.
  void refuse_later_writes(std::shared_ptr<const std::vector<SavedTensor>> saved,
                           std::span<const at::Tensor> written);
  // Notes that the graph task of this thread has come to a result with an undefined gradient.
  void arrive_undefined(std::size_t result);
  // Begins a backward for some chains of nodes. Throws c10::Error: a second backward without retain_graph
  // (see saved_groups.h), a saved tensor modified in place, create_graph=True or is_grads_batched=True
  // without a replay.
  void begin(const Arrivals::Beginning& beginning);
  // Gives a chain the gradients at `places` of the joint graph's gradient_of, which are there after delivery
  // `part` of the forward's own plan. `last` ends the chain.
  torch::autograd::variable_list advance(std::size_t chain, std::size_t part,
                                         const std::vector<std::size_t>& places, bool last);
  // What comes from one result to others, whose gradients this backward is about, too. `goes_on`: whether it
  // begins after that.
  torch::autograd::variable_list reach(std::size_t result, const at::Tensor& cotangent,
                                       const std::vector<std::size_t>& others, bool goes_on);
  // How many there are.
  std::size_t gradients() const { return plans_->joint().gradient_of.size(); }
  // Which results lead to which gradients.
  const SavedGroups::Leads& leads() const { return plans_->groups().leads(); }
  // Per gradient of a plan, which has fewer than the full graph's when it is for fewer cotangents: its place
  // there.
  std::vector<std::size_t> places_of(const Plan& plan) const;
  // The forward's.
  const std::shared_ptr<const Plan>& plan() const { return plan_; }

 private:
  // One backward in flight. `frame` is one of `copy`, `other` or the forward's own.
  struct Run {
    std::unique_ptr<Frame> copy;
    FramePool::Handle other;
    Frame* frame = nullptr;
    std::vector<std::size_t> places;      // per gradient of the frame's plan: which one of the full graph's
    std::size_t done = 0, delivered = 0;  // instructions, deliveries
    torch::autograd::variable_list gradients;
  };

  // What a frame leaves for backwards that are still possible.
  struct Rest {
    SavedValues values;
    std::vector<at::Tensor> inputs;  // the forward's, if there are values
  };

  // What it takes to do the forward again.
  struct Repeat {
    std::vector<at::Tensor> inputs;
    ReplayState state;
  };

  // Frees what a backward does, gives `run` its frame or returns what it takes to do the forward `again`.
  Repeat take(Run& run, const Flags& present, const Arrivals::Beginning& beginning, bool again);
  // The rest but `replay`, `bind` and `run_to`: under the lock.
  BackwardPart part_of(const Flags& present) const;
  // Whether the forward's own frame is there, and is for such a backward.
  bool is_planned(const BackwardPart& part) const;
  void check_versions(const BackwardPart& part, const Flags& wanted) const;
  SavedValues values_for(const BackwardPart& part, bool own) const;
  Rest rest_for(const BackwardPart& left) const;
  void take_frame(Run& run, const BackwardPart& part, const Flags& wanted, FramePool* pool, bool keep);
  // Returns whether eager's forward and backward can be run in the place of the graph's.
  bool may_replay();
  // Returns what the nodes of results have noted in this graph task, and forgets it if the run is its `last`.
  Cut take_cut(bool last);
  torch::autograd::variable_list replay(const Repeat& repeat,
                                        const torch::autograd::variable_list& cotangents,
                                        const Cut& cut) const;
  void bind(Run& run, const torch::autograd::variable_list& cotangents) const;
  void run_to(Run& run, std::size_t part) const;
  std::vector<at::Tensor> forward_inputs() const;

  const std::shared_ptr<PlanCache> plans_;
  const std::shared_ptr<const Plan> plan_;  // the forward's
  Mutex mutex_;  // guards all below; a retained graph may be run by several threads
  SavedVersions versions_;
  FramePool::Handle frame_;
  ReplayState replay_;  // empty once no backward is possible any more
  Rest rest_;           // once there is no frame
  Flags freed_;         // groups
  bool first_ = true;   // no backward has begun
  std::map<std::pair<int, std::size_t>, std::shared_ptr<Run>> runs_;  // by graph task and chain
  std::map<int, Cut> cuts_;  // by graph task: of those that are to begin
};

// A node of the chain, or of a result.
class ForwardNode : public torch::autograd::Node {
 public:
  ForwardNode(std::shared_ptr<Backward> backward, torch::autograd::edge_list next);

  std::string name() const override { return "RekindleBackward"; }
  Backward& backward() const { return *backward_; }

 protected:
  const std::shared_ptr<Backward> backward_;
};

}  // namespace rekindle::session
