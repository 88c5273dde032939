// The autograd nodes of the results of one recorded forward that has several, before the chain of
// backward_chain.h.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <memory>
#include <span>
#include <vector>

#include "session/autograd/backward.h"

namespace rekindle::session {

// The node of one of several results, before the chain: who hooks, retains or asks for the result's gradient
// does it here, with all that comes to it and with nothing else. Its outputs are the cotangent, to each chain
// that it leads to, and what comes to each inner result, to that one's node: nothing unless somebody is
// interested there.
class ResultNode : public ForwardNode {
 public:
  // `next`: edges to chains, then one to the node of each of `inner`. `arrivals`: null if there is one chain.
  ResultNode(std::shared_ptr<Backward> backward, std::shared_ptr<Arrivals> arrivals, std::size_t result,
             std::vector<std::size_t> inner, torch::autograd::edge_list next);

  torch::autograd::variable_list apply(torch::autograd::variable_list&& inputs) override;

 private:
  bool leads_on() const;  // in the graph task of this thread

  const std::shared_ptr<Arrivals> arrivals_;
  const std::size_t result_, chains_;
  const std::vector<std::size_t> inner_;
};

// Lets the backwards of a recorded forward with these results refuse what Backward::refuse_later_writes does.
// A forward that was not recorded has none.
void refuse_later_writes(std::span<const at::Tensor> results,
                         std::shared_ptr<const std::vector<SavedTensor>> saved,
                         std::span<const at::Tensor> written);

// Connects the results of a forward, one per cotangent. `gradient_edges`: where each gradient of the joint
// graph's gradient_of goes.
void connect(const std::vector<at::Tensor>& results, std::shared_ptr<PlanCache> plans,
             FramePool::Handle frame, SavedVersions versions, ReplayState replay,
             const torch::autograd::edge_list& gradient_edges);

}  // namespace rekindle::session
