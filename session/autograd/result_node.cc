#include "session/autograd/result_node.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "session/autograd/backward_chain.h"

namespace rekindle::session {

using torch::autograd::edge_list;
using torch::autograd::variable_list;

namespace {

// Whether somebody hooks or retains the gradient that comes to a node in this backward, or asks for it.
bool is_of_interest(torch::autograd::Node& node) {
  if (!node.tensor_pre_hooks().empty() || !node.retains_grad_hooks().empty() || !node.pre_hooks().empty() ||
      !node.post_hooks().empty())
    return true;
  const auto* asked = torch::autograd::get_current_graph_task_exec_info();
  if (asked == nullptr) return false;
  const auto known = asked->find(&node);
  return known != asked->end() && known->second.captures_ != nullptr;
}

}  // namespace

ResultNode::ResultNode(std::shared_ptr<Backward> backward, std::shared_ptr<Arrivals> arrivals,
                       std::size_t result, std::vector<std::size_t> inner, edge_list next)
    : ForwardNode(std::move(backward), std::move(next)),
      arrivals_(std::move(arrivals)),
      result_(result),
      chains_(num_outputs() - inner.size()),
      inner_(std::move(inner)) {}

bool ResultNode::leads_on() const {
  for (std::size_t i = 0; i < chains_; ++i) {
    if (task_should_compute_output(i)) return true;
  }
  return false;
}

variable_list ResultNode::apply(variable_list&& inputs) {
  variable_list outputs(num_outputs());
  if (arrivals_ != nullptr) arrivals_->arrive(result_, inputs.at(0));
  if (!inputs.at(0).defined()) {
    backward_->arrive_undefined(result_);
    return outputs;
  }
  std::vector<std::size_t> others, edges;
  for (std::size_t i = 0; i < inner_.size(); ++i) {
    if (!is_of_interest(*next_edge(chains_ + i).function)) continue;
    others.push_back(inner_[i]);
    edges.push_back(chains_ + i);
  }
  if (!others.empty()) {
    variable_list reached = backward_->reach(result_, inputs[0], others, leads_on());
    for (std::size_t i = 0; i < edges.size(); ++i) outputs[edges[i]] = std::move(reached.at(i));
  }
  for (std::size_t i = 0; i < chains_; ++i) outputs[i] = inputs[0];
  return outputs;
}

void refuse_later_writes(std::span<const at::Tensor> results,
                         std::shared_ptr<const std::vector<SavedTensor>> saved,
                         std::span<const at::Tensor> written) {
  if (saved->empty()) return;
  for (const at::Tensor& result : results) {
    if (!result.defined() || !result.requires_grad()) continue;
    if (const auto* node = dynamic_cast<const ForwardNode*>(result.grad_fn().get()))
      return node->backward().refuse_later_writes(std::move(saved), written);
  }
}

namespace {

// Makes the nodes of several results, inner ones first, of which a result has more than any of these has.
class ResultMaker {
 public:
  ResultMaker(std::shared_ptr<Backward> backward, std::vector<std::shared_ptr<BackwardNode>> chains,
              const std::vector<std::vector<std::size_t>>& inner)
      : backward_(std::move(backward)),
        chains_(std::move(chains)),
        from_(backward_->leads().from),
        inner_(inner) {
    const bool lead_to_all = from_.size() == 1 && std::ranges::find(from_[0], false) == from_[0].end();
    if (!lead_to_all) arrivals_ = std::make_shared<Arrivals>();
  }

  void connect(const std::vector<at::Tensor>& results) {
    for (const auto& chain : chains_) take_all(*chain, results);
    std::vector<std::size_t> order(results.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [this](std::size_t i) { return within(i).size(); });
    nodes_.resize(results.size());
    for (const std::size_t result : order) nodes_[result] = made(result);
    for (std::size_t i = 0; i < results.size(); ++i) torch::autograd::set_history(results[i], nodes_[i]);
    if (arrivals_ == nullptr) return;
    for (const auto& chain : chains_) arrivals_->add_chain(chain);
    for (const auto& node : nodes_) arrivals_->add_result(node);
  }

 private:
  void take_all(BackwardNode& chain, const std::vector<at::Tensor>& results) const {
    chain.begin_with(arrivals_);
    if (arrivals_ != nullptr)
      chain.add_input_metadata(at::empty({0}, at::TensorOptions().device(backward_->plan()->device)));
    for (const at::Tensor& result : results) chain.add_input_metadata(result);
  }

  std::vector<std::size_t> within(std::size_t result) const {
    return result < inner_.size() ? inner_[result] : std::vector<std::size_t>();
  }

  std::shared_ptr<torch::autograd::Node> made(std::size_t result) const {
    edge_list edges;
    for (std::size_t i = 0; i < chains_.size(); ++i) {
      if (from_[i][result]) edges.emplace_back(chains_[i], (arrivals_ != nullptr ? 1 : 0) + result);
    }
    std::vector<std::size_t> others;
    for (const std::size_t other : within(result)) {
      if (other >= nodes_.size() || nodes_[other] == nullptr) continue;
      others.push_back(other);
      edges.emplace_back(nodes_[other], 0);
    }
    return {new ResultNode(backward_, arrivals_, result, std::move(others), std::move(edges)),
            torch::autograd::deleteNode};
  }

  const std::shared_ptr<Backward> backward_;
  const std::vector<std::shared_ptr<BackwardNode>> chains_;
  const std::vector<std::vector<bool>>& from_;  // per chain: the results that lead to it
  const std::vector<std::vector<std::size_t>>& inner_;
  std::shared_ptr<Arrivals> arrivals_;  // null where all results lead to all gradients
  std::vector<std::shared_ptr<torch::autograd::Node>> nodes_;
};

}  // namespace

void connect(const std::vector<at::Tensor>& results, std::shared_ptr<PlanCache> plans,
             FramePool::Handle frame, SavedVersions versions, ReplayState replay,
             const edge_list& gradient_edges) {
  const auto state =
      std::make_shared<Backward>(plans, std::move(frame), std::move(versions), std::move(replay));
  auto chains = make_backward_chains(state, gradient_edges);
  if (results.size() > 1)
    return ResultMaker(state, std::move(chains), plans->inner_results()).connect(results);
  chains[0]->begin_with(nullptr);
  torch::autograd::set_history(results[0], chains[0]);
}

}  // namespace rekindle::session
