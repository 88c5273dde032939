// The autograd nodes behind the outputs of one recorded forward: a chain, so that each gradient is delivered,
// and may be freed, as soon as it exists.
//
// The first node takes the cotangents and runs the backward up to its first delivery (see
// Plan::deliveries); each further node runs it up to the next. The engine prefers a leaf's AccumulateGrad
// to the next node of the chain, so hooks, gradient reduction and optimizers that work inside the backward
// find gradients in backward order.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <map>
#include <memory>
#include <mutex>

#include "session/frame.h"
#include "session/plan_cache.h"

namespace rekindle::session {

// What a differentiable backward of one forward needs beside its frame; see Replay.
struct ReplayState {
  std::shared_ptr<const Replay> replay;  // null: none was given
  at::Tensor random_state;
};

// What one forward left for its backwards, and how far each backward in flight is. Shared by a chain's nodes.
//
// What was left is in the forward's frame or, once a backward of some of the outputs has consumed that, in
// values of their own, for as long as another backward may read them.
class Backward {
 public:
  using Flags = std::vector<bool>;

  Backward(std::shared_ptr<PlanCache> plans, FramePool::Handle frame, ReplayState replay);

  // Begins a backward for the gradients `wanted`, by their place in the joint graph's gradient_of. Throws
  // c10::Error: a second backward without retain_graph (see saved_groups.h), a saved tensor modified in
  // place, create_graph=True or is_grads_batched=True without a replay.
  void begin(const torch::autograd::variable_list& cotangents, const Flags& wanted);
  // The gradients, by place, after delivery `part` of the forward's own plan; those delivered before are
  // undefined. `last` ends the backward.
  torch::autograd::variable_list advance(std::size_t part, bool last);
  // What comes from one result to others, whose gradients this backward is about, too. `goes_on`: whether it
  // begins after that.
  torch::autograd::variable_list reach(std::size_t result, const at::Tensor& cotangent,
                                       const std::vector<std::size_t>& others, bool goes_on);
  // How many there are.
  std::size_t gradients() const { return plans_->joint().gradient_of.size(); }
  const autodiff::JointGraph& joint() const { return plans_->joint(); }
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

  BackwardPart part_of(const Flags& present) const;
  void check_versions(const BackwardPart& part) const;
  SavedValues values_for(const BackwardPart& part, bool own) const;
  Rest rest_for(const BackwardPart& left) const;
  void take_frame(Run& run, const BackwardPart& part, bool keep);
  torch::autograd::variable_list replay(const std::vector<at::Tensor>& inputs,
                                        const torch::autograd::variable_list& cotangents,
                                        const Cut& cut) const;
  void bind(Run& run, const torch::autograd::variable_list& cotangents) const;
  void run_to(Run& run, std::size_t part) const;
  std::vector<at::Tensor> forward_inputs() const;

  const std::shared_ptr<PlanCache> plans_;
  const std::shared_ptr<const Plan> plan_;  // the forward's
  const ReplayState replay_;
  std::mutex mutex_;  // guards all below; a retained graph may be run by several threads
  FramePool::Handle frame_;
  Rest rest_;                                 // once there is no frame
  Flags freed_;                               // groups
  bool first_ = true;                         // no backward has begun
  std::map<int, std::shared_ptr<Run>> runs_;  // by graph task
  std::map<int, Cut> cuts_;                   // of those that are to begin
};

// One delivery. Its outputs are the gradients it delivers and, but for the last node, a link to the next,
// which carries nothing.
class BackwardNode : public torch::autograd::Node {
 public:
  BackwardNode(std::shared_ptr<Backward> backward, std::size_t part, std::vector<std::size_t> delivers,
               torch::autograd::edge_list next);

  torch::autograd::variable_list apply(torch::autograd::variable_list&& inputs) override;
  std::string name() const override { return "RekindleBackward"; }

 private:
  bool linked() const { return num_outputs() > delivers_.size(); }
  // Which gradients this backward is asked for, of this node and those after it.
  std::vector<bool> wanted(std::size_t gradients) const;

  const std::shared_ptr<Backward> backward_;
  const std::size_t part_;
  const std::vector<std::size_t> delivers_;  // places in gradient_of
};

// The first node of the chain. `gradient_edges`: where each gradient of the joint graph's gradient_of goes.
std::shared_ptr<torch::autograd::Node> make_backward_chain(const std::shared_ptr<Backward>& backward,
                                                           const torch::autograd::edge_list& gradient_edges);

}  // namespace rekindle::session
