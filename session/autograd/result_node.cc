#include "session/autograd/result_node.h"

#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
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

ResultNode::ResultNode(std::shared_ptr<Backward> backward, std::size_t result, std::vector<std::size_t> inner,
                       edge_list next)
    : ForwardNode(std::move(backward), std::move(next)), result_(result), inner_(std::move(inner)) {}

variable_list ResultNode::apply(variable_list&& inputs) {
  variable_list outputs(num_outputs());
  if (!inputs.at(0).defined()) return outputs;
  std::vector<std::size_t> others, edges;
  for (std::size_t i = 0; i < inner_.size(); ++i) {
    if (!is_of_interest(*next_edge(1 + i).function)) continue;
    others.push_back(inner_[i]);
    edges.push_back(1 + i);
  }
  if (!others.empty()) {
    variable_list reached = backward_->reach(result_, inputs[0], others, task_should_compute_output(0));
    for (std::size_t i = 0; i < edges.size(); ++i) outputs[edges[i]] = std::move(reached.at(i));
  }
  outputs[0] = std::move(inputs[0]);
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

void connect(const std::vector<at::Tensor>& results, std::shared_ptr<PlanCache> plans,
             FramePool::Handle frame, SavedVersions versions, ReplayState replay,
             const edge_list& gradient_edges) {
  const auto state =
      std::make_shared<Backward>(plans, std::move(frame), std::move(versions), std::move(replay));
  const auto chain = make_backward_chain(state, gradient_edges);
  if (results.size() == 1) return torch::autograd::set_history(results[0], chain);
  const auto& inner = plans->inner_results();
  std::vector<std::size_t> order;  // inner ones first, of which a result has more than any of these has
  for (std::size_t i = 0; i < results.size(); ++i) {
    chain->add_input_metadata(results[i]);
    order.push_back(i);
  }
  const auto within = [&](std::size_t i) { return i < inner.size() ? inner[i] : std::vector<std::size_t>(); };
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return within(i).size(); });
  std::vector<std::shared_ptr<torch::autograd::Node>> nodes(results.size());
  for (const std::size_t result : order) {
    edge_list edges{{chain, static_cast<std::uint32_t>(result)}};
    std::vector<std::size_t> others;
    for (const std::size_t other : within(result)) {
      if (other >= nodes.size() || nodes[other] == nullptr) continue;
      others.push_back(other);
      edges.emplace_back(nodes[other], 0);
    }
    nodes[result] = std::shared_ptr<torch::autograd::Node>(
        new ResultNode(state, result, std::move(others), std::move(edges)), torch::autograd::deleteNode);
    torch::autograd::set_history(results[result], nodes[result]);
  }
}

}  // namespace rekindle::session
