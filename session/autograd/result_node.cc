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
  if (!inputs.at(0).defined()) return outputs;
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
  ResultMaker(std::shared_ptr<Backward> backward, std::vector<Chain> chains,
              const std::vector<at::Tensor>& results, const std::vector<std::vector<std::size_t>>& inner)
      : backward_(std::move(backward)), chains_(std::move(chains)), inner_(inner), nodes_(results.size()) {
    const auto of_all = [](const Chain& chain) {
      return std::ranges::find(chain.from, false) == chain.from.end();
    };
    if (chains_.size() > 1 || !std::ranges::all_of(chains_, of_all)) arrivals_ = std::make_shared<Arrivals>();
    const at::Tensor link = at::empty({0}, at::TensorOptions().device(backward_->plan()->device));
    for (const Chain& chain : chains_) {
      chain.first->add_input_metadata(link);
      for (const at::Tensor& result : results) chain.first->add_input_metadata(result);
      chain.first->begin_with(arrivals_);
      if (arrivals_ != nullptr) arrivals_->add_chain(chain.first);
    }
  }

  void connect(const std::vector<at::Tensor>& results) {
    std::vector<std::size_t> order(results.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [this](std::size_t i) { return within(i).size(); });
    for (const std::size_t result : order) nodes_[result] = made(result);
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (arrivals_ != nullptr) arrivals_->add_result(nodes_[i]);
      torch::autograd::set_history(results[i], nodes_[i]);
    }
  }

 private:
  std::vector<std::size_t> within(std::size_t result) const {
    return result < inner_.size() ? inner_[result] : std::vector<std::size_t>();
  }

  std::shared_ptr<torch::autograd::Node> made(std::size_t result) const {
    edge_list edges;
    for (const Chain& chain : chains_) {
      if (chain.from[result]) edges.emplace_back(chain.first, static_cast<std::uint32_t>(1 + result));
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
  const std::vector<Chain> chains_;
  const std::vector<std::vector<std::size_t>>& inner_;
  std::shared_ptr<Arrivals> arrivals_;
  std::vector<std::shared_ptr<torch::autograd::Node>> nodes_;
};

}  // namespace

void connect(const std::vector<at::Tensor>& results, std::shared_ptr<PlanCache> plans,
             FramePool::Handle frame, SavedVersions versions, ReplayState replay,
             const edge_list& gradient_edges) {
  const auto state =
      std::make_shared<Backward>(plans, std::move(frame), std::move(versions), std::move(replay));
  std::vector<Chain> chains = make_backward_chains(state, gradient_edges);
  if (results.size() > 1)
    return ResultMaker(state, std::move(chains), results, plans->inner_results()).connect(results);
  chains[0].first->begin_with(nullptr);
  torch::autograd::set_history(results[0], chains[0].first);
}

}  // namespace rekindle::session
