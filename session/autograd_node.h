// BackwardNode: the C++ autograd node behind the outputs of one recorded forward.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <memory>

#include "session/frame.h"
#include "session/plan_cache.h"

namespace rekindle::session {

// What a differentiable backward of one forward needs beside its frame; see Replay.
struct ReplayState {
  std::shared_ptr<const Replay> replay;  // null: none was given
  at::Tensor random_state;
};

// Owns the forward's frame until its backward has run, release_variables() is called or the node dies. Its inputs are
// the cotangents in joint order, its outputs the gradients in the order of gradient_of.
class BackwardNode : public torch::autograd::Node {
 public:
  BackwardNode(std::shared_ptr<PlanCache> plans, FramePool::Handle frame, torch::autograd::edge_list next,
               ReplayState replay);

  // Throws c10::Error: a second backward without retain_graph, a saved tensor modified in place, create_graph=True without
  // a replay.
  torch::autograd::variable_list apply(torch::autograd::variable_list&& cotangents) override;
  void release_variables() override { frame_.reset(); }
  std::string name() const override { return "RekindleBackward"; }

 private:
  torch::autograd::variable_list run_replay(const torch::autograd::variable_list& cotangents) const;
  torch::autograd::variable_list run(Frame& frame, const torch::autograd::variable_list& cotangents);

  std::shared_ptr<PlanCache> plans_;
  FramePool::Handle frame_;
  const ReplayState replay_;
};

}  // namespace rekindle::session
