#include "session/autograd/backward_chain.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <queue>
#include <utility>

namespace rekindle::session {

using torch::autograd::edge_list;
using torch::autograd::variable_list;

namespace {

// The edges of a node in such an order that the engine runs what they lead to in the order of `wanted`.
// Leaves are all as urgent; of those that become ready together the engine's heap takes the first, then, if
// they are three or more, not the second. What else is ready is assumed to be nothing but the next node of
// the chain.
std::vector<std::size_t> as_edges(const std::vector<std::size_t>& wanted, bool linked) {
  using Ready = std::pair<bool, std::size_t>;  // whether it is a leaf; which edge leads to it
  const auto runs_later = [](const Ready& a, const Ready& b) { return a.first < b.first; };
  std::priority_queue<Ready, std::vector<Ready>, decltype(runs_later)> queue(runs_later);
  for (std::size_t i = 0; i < wanted.size(); ++i) queue.emplace(true, i);
  if (linked) queue.emplace(false, wanted.size());
  std::vector<std::size_t> edges(wanted.size());
  for (const std::size_t each : wanted) {
    edges[queue.top().second] = each;
    queue.pop();
  }
  return edges;
}

}  // namespace

BackwardNode::BackwardNode(std::shared_ptr<Backward> backward, std::size_t part,
                           std::vector<std::size_t> delivers, edge_list next)
    : ForwardNode(std::move(backward), std::move(next)), part_(part), delivers_(std::move(delivers)) {}

std::vector<bool> BackwardNode::wanted(std::size_t gradients) const {
  std::vector<bool> wanted(gradients, false);
  for (const BackwardNode* node = this; node != nullptr;) {
    for (std::size_t i = 0; i < node->delivers_.size(); ++i)
      wanted[node->delivers_[i]] = node->task_should_compute_output(i);
    const auto next = node->linked() ? node->next_edge(node->delivers_.size()).function.get() : nullptr;
    node = static_cast<const BackwardNode*>(next);
  }
  return wanted;
}

variable_list BackwardNode::apply(variable_list&& inputs) {
  const bool last = !linked() || !task_should_compute_output(delivers_.size());
  if (part_ == 0) backward_->begin(inputs, wanted(backward_->gradients()));
  variable_list all = backward_->advance(part_, last);
  variable_list delivered(num_outputs());
  for (std::size_t i = 0; i < delivers_.size(); ++i) delivered[i] = std::move(all[delivers_[i]]);
  return delivered;
}

std::shared_ptr<torch::autograd::Node> make_backward_chain(const std::shared_ptr<Backward>& state,
                                                           const edge_list& gradient_edges) {
  const std::shared_ptr<const Plan> plan = state->plan();
  const std::vector<std::size_t> places = state->places_of(*plan);
  std::vector<bool> unplaced(gradient_edges.size(), true);
  for (const std::size_t place : places) unplaced[place] = false;
  std::shared_ptr<torch::autograd::Node> next;
  const std::size_t parts = std::max<std::size_t>(plan->deliveries.size(), 1);
  // The engine runs a node on the device and the stream of its first input: of a link, the forward's.
  at::Tensor link;
  if (parts > 1) link = at::empty({0}, at::TensorOptions().device(plan->device));
  for (std::size_t part = parts; part-- > 0;) {
    std::vector<std::size_t> delivers;
    if (part < plan->deliveries.size()) {
      for (const std::size_t output : plan->deliveries[part].gradients) delivers.push_back(places[output]);
    }
    if (part + 1 == parts) {  // with the gradients that only another set of cotangents has
      for (std::size_t place = 0; place < unplaced.size(); ++place) {
        if (unplaced[place]) delivers.push_back(place);
      }
    }
    delivers = as_edges(delivers, next != nullptr);
    edge_list edges;
    for (const std::size_t place : delivers) edges.push_back(gradient_edges[place]);
    if (next != nullptr) edges.emplace_back(next, 0);
    next = std::shared_ptr<torch::autograd::Node>(
        new BackwardNode(state, part, std::move(delivers), std::move(edges)), torch::autograd::deleteNode);
    if (part > 0) next->add_input_metadata(link);
  }
  return next;
}

}  // namespace rekindle::session
