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

BackwardNode::BackwardNode(std::shared_ptr<Backward> backward, Place place, std::vector<std::size_t> delivers,
                           edge_list next)
    : ForwardNode(std::move(backward), std::move(next)), place_(place), delivers_(std::move(delivers)) {}

void BackwardNode::begin_with(std::shared_ptr<Arrivals> arrivals) {
  is_first_ = true;
  arrivals_ = std::move(arrivals);
}

void BackwardNode::add_wanted(std::vector<bool>& wanted) const {
  wanted.resize(backward_->gradients());
  for (const BackwardNode* node = this; node != nullptr;) {
    for (std::size_t i = 0; i < node->delivers_.size(); ++i)
      wanted[node->delivers_[i]] = node->task_should_compute_output(i);
    const auto next = node->linked() ? node->next_edge(node->delivers_.size()).function.get() : nullptr;
    node = static_cast<const BackwardNode*>(next);
  }
}

void BackwardNode::begin(variable_list&& cotangents) {
  if (arrivals_ != nullptr) {
    cotangents.erase(cotangents.begin());  // the link
    const auto beginning = arrivals_->begin(place_.chain, std::move(cotangents));
    if (beginning) backward_->begin(*beginning);
    return;
  }
  if (cotangents.size() == 1 && !cotangents[0].defined()) backward_->arrive_undefined(0);
  Arrivals::Beginning beginning{{place_.chain}, std::move(cotangents), {}, true};
  add_wanted(beginning.wanted);
  backward_->begin(beginning);
}

variable_list BackwardNode::apply(variable_list&& inputs) {
  const bool last = !linked() || !task_should_compute_output(delivers_.size());
  if (is_first_) begin(std::move(inputs));
  variable_list delivered = backward_->advance(place_.chain, place_.part, delivers_, last);
  delivered.resize(num_outputs());
  return delivered;
}

namespace {

// Makes the chains of one forward, from the last delivery to the first: of what is ready, the engine runs
// first what was made last.
class ChainMaker {
 public:
  ChainMaker(std::shared_ptr<Backward> backward, const edge_list& gradient_edges)
      : backward_(std::move(backward)),
        plan_(backward_->plan()),
        leads_(backward_->leads()),
        edges_(gradient_edges),
        chains_(leads_.from.size()) {}

  std::vector<std::shared_ptr<BackwardNode>> run() {
    const std::vector<std::size_t> places = backward_->places_of(*plan_);
    std::vector<bool> unplaced(edges_.size(), true);
    for (const std::size_t place : places) unplaced[place] = false;
    const std::size_t parts = std::max<std::size_t>(plan_->deliveries.size(), 1);
    for (std::size_t part = parts; part-- > 0;) {
      std::vector<std::size_t> gradients;
      if (part < plan_->deliveries.size()) {
        for (const std::size_t output : plan_->deliveries[part].gradients)
          gradients.push_back(places[output]);
      }
      if (part + 1 == parts) {  // with the gradients that only another set of cotangents has
        for (std::size_t place = 0; place < unplaced.size(); ++place) {
          if (unplaced[place]) gradients.push_back(place);
        }
      }
      prepend_all(part, gradients);
    }
    return std::move(chains_);
  }

 private:
  // A node for each row of gradients of one chain: chains take turns, in the order of the gradients.
  void prepend_all(std::size_t part, const std::vector<std::size_t>& gradients) {
    for (std::size_t end = gradients.size(); end > 0;) {
      const std::size_t chain = leads_.to_gradient[gradients[end - 1]];
      std::size_t begin = end - 1;
      while (begin > 0 && leads_.to_gradient[gradients[begin - 1]] == chain) --begin;
      prepend({chain, part}, {gradients.begin() + static_cast<std::ptrdiff_t>(begin),
                              gradients.begin() + static_cast<std::ptrdiff_t>(end)});
      end = begin;
    }
  }

  void prepend(BackwardNode::Place place, const std::vector<std::size_t>& wanted) {
    std::shared_ptr<BackwardNode>& first = chains_[place.chain];
    std::vector<std::size_t> delivers = as_edges(wanted, first != nullptr);
    edge_list edges;
    for (const std::size_t gradient : delivers) edges.push_back(edges_[gradient]);
    if (first != nullptr) {
      first->add_input_metadata(link());
      edges.emplace_back(first, 0);
    }
    first = std::shared_ptr<BackwardNode>(
        new BackwardNode(backward_, place, std::move(delivers), std::move(edges)),
        torch::autograd::deleteNode);
  }

  // The engine runs a node on the device and the stream of its first input: of a link, the forward's.
  const at::Tensor& link() {
    if (!link_.defined()) link_ = at::empty({0}, at::TensorOptions().device(plan_->device));
    return link_;
  }

  const std::shared_ptr<Backward> backward_;
  const std::shared_ptr<const Plan> plan_;
  const SavedGroups::Leads& leads_;
  const edge_list& edges_;
  std::vector<std::shared_ptr<BackwardNode>> chains_;  // their first nodes
  at::Tensor link_;
};

}  // namespace

std::vector<std::shared_ptr<BackwardNode>> make_backward_chains(const std::shared_ptr<Backward>& backward,
                                                                const edge_list& gradient_edges) {
  return ChainMaker(backward, gradient_edges).run();
}

}  // namespace rekindle::session
