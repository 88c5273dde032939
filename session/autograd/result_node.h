// The autograd nodes of the results of one recorded forward that has several, before the chain of
// backward_chain.h.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <memory>
#include <string>
#include <vector>

#include "session/autograd/backward.h"

namespace rekindle::session {

// The node of one of several results, before the chain: who hooks, retains or asks for the result's gradient
// does it here, with all that comes to it and with nothing else. Its outputs are the cotangent, to the chain,
// and what comes to each inner result, to that one's node: nothing unless somebody is interested there.
class ResultNode : public torch::autograd::Node {
 public:
  ResultNode(std::shared_ptr<Backward> backward, std::size_t result, std::vector<std::size_t> inner,
             torch::autograd::edge_list next);

  torch::autograd::variable_list apply(torch::autograd::variable_list&& inputs) override;
  std::string name() const override { return "RekindleBackward"; }

 private:
  const std::shared_ptr<Backward> backward_;
  const std::size_t result_;
  const std::vector<std::size_t> inner_;
};

// Connects the results of a forward, one per cotangent. `gradient_edges`: where each gradient of the joint
// graph's gradient_of goes.
void connect(const std::vector<at::Tensor>& results, std::shared_ptr<PlanCache> plans,
             FramePool::Handle frame, SavedVersions versions, ReplayState replay,
             const torch::autograd::edge_list& gradient_edges);

}  // namespace rekindle::session
