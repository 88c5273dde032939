// The autograd nodes behind the outputs of one recorded forward: chains, so that each gradient is delivered,
// and may be freed, as soon as it exists.
//
// The first node of a chain takes the cotangents and runs the backward up to its first delivery (see
// Plan::deliveries); each further node runs it up to the next. The engine prefers a leaf's AccumulateGrad
// to the next node of the chain, so hooks, gradient reduction and optimizers that work inside the backward
// find gradients in backward order.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <memory>
#include <vector>

#include "session/autograd/arrivals.h"
#include "session/autograd/backward.h"

namespace rekindle::session {

// One delivery. Its outputs are the gradients it delivers and, but for the last node, a link to the next,
// which carries nothing. The first node of a chain takes the cotangents of all results and, where there are
// several chains, such a link before these, for the device that it has.
class BackwardNode : public ForwardNode {
 public:
  // Where a node belongs: to which chain, and after which delivery of the forward's plan it comes.
  struct Place {
    std::size_t chain, part;
  };

  BackwardNode(std::shared_ptr<Backward> backward, Place place, std::vector<std::size_t> delivers,
               torch::autograd::edge_list next);

  torch::autograd::variable_list apply(torch::autograd::variable_list&& inputs) override;

  // Makes this the first node of its chain. `arrivals`: null if there is one chain, of all results.
  void begin_with(std::shared_ptr<Arrivals> arrivals);
  // Adds which gradients the graph task of this thread asks for, of this node and those after it.
  void add_wanted(std::vector<bool>& wanted) const;

 private:
  bool linked() const { return num_outputs() > delivers_.size(); }
  void begin(torch::autograd::variable_list&& cotangents);

  const Place place_;
  const std::vector<std::size_t> delivers_;  // places in gradient_of
  bool is_first_ = false;
  std::shared_ptr<Arrivals> arrivals_;
};

// The first nodes of the chains of a forward: one for each set of results in SavedGroups::leads(), with the
// gradients to which these lead. `gradient_edges`: where each gradient of the joint graph's gradient_of goes.
std::vector<std::shared_ptr<BackwardNode>> make_backward_chains(
    const std::shared_ptr<Backward>& backward, const torch::autograd::edge_list& gradient_edges);

}  // namespace rekindle::session
