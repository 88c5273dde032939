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

// What one forward left for its backwards: the frame, and how far each backward
// in flight is. Shared by a chain's nodes.
class Backward {
 public:
  Backward(std::shared_ptr<PlanCache> plans, FramePool::Handle frame, ReplayState replay);

  // The gradients by their place in the joint graph's gradient_of, after delivery `part` of the forward's own
  // plan; those delivered before are undefined. Part 0 begins a backward, with `cotangents`; `last` ends it.
  // Throws c10::Error: a second backward without retain_graph, a saved tensor modified in place,
  // create_graph=True or is_grads_batched=True without a replay.
  torch::autograd::variable_list advance(std::size_t part, const torch::autograd::variable_list& cotangents,
                                         bool last);

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

  void begin(Run& run, const torch::autograd::variable_list& cotangents);
  void bind(Run& run, const torch::autograd::variable_list& cotangents) const;
  void run_to(Run& run, std::size_t part) const;
  torch::autograd::variable_list replay(const torch::autograd::variable_list& cotangents) const;

  const std::shared_ptr<PlanCache> plans_;
  const ReplayState replay_;
  FramePool::Handle frame_;
  bool consumed_ = false;                     // by a backward that does not retain the graph
  std::mutex mutex_;                          // guards runs_
  std::map<int, std::shared_ptr<Run>> runs_;  // by graph task: a retained graph may be run by several threads
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
  const std::shared_ptr<Backward> backward_;
  const std::size_t part_;
  const std::vector<std::size_t> delivers_;  // places in gradient_of
};

// The first node of the chain. `gradient_edges`: where each gradient of the joint graph's gradient_of goes.
std::shared_ptr<torch::autograd::Node> make_backward_chain(std::shared_ptr<PlanCache> plans,
                                                           FramePool::Handle frame, ReplayState replay,
                                                           const torch::autograd::edge_list& gradient_edges);

}  // namespace rekindle::session
