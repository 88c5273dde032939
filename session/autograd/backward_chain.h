// The autograd nodes behind the outputs of one recorded forward: a chain, so that each gradient is delivered,
// and may be freed, as soon as it exists.
//
// The first node takes the cotangents and runs the backward up to its first delivery (see
// Plan::deliveries); each further node runs it up to the next. The engine prefers a leaf's AccumulateGrad
// to the next node of the chain, so hooks, gradient reduction and optimizers that work inside the backward
// find gradients in backward order.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <memory>
#include <vector>

#include "session/autograd/backward.h"

namespace rekindle::session {

// One delivery. Its outputs are the gradients it delivers and, but for the last node, a link to the next,
// which carries nothing.
class BackwardNode : public ForwardNode {
 public:
  BackwardNode(std::shared_ptr<Backward> backward, std::size_t part, std::vector<std::size_t> delivers,
               torch::autograd::edge_list next);

  torch::autograd::variable_list apply(torch::autograd::variable_list&& inputs) override;

 private:
  bool linked() const { return num_outputs() > delivers_.size(); }
  // Which gradients this backward is asked for, of this node and those after it.
  std::vector<bool> wanted(std::size_t gradients) const;

  const std::size_t part_;
  const std::vector<std::size_t> delivers_;  // places in gradient_of
};

// The first node of the chain. `gradient_edges`: where each gradient of the joint graph's gradient_of goes.
std::shared_ptr<torch::autograd::Node> make_backward_chain(const std::shared_ptr<Backward>& backward,
                                                           const torch::autograd::edge_list& gradient_edges);

}  // namespace rekindle::session
