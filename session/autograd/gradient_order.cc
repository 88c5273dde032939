#include "session/autograd/gradient_order.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <queue>
#include <unordered_map>
#include <utility>

namespace rekindle::session {
namespace {

using torch::autograd::edge_list;
using torch::autograd::Node;

// The engine's: leaves first, then what was recorded last.
struct RunsLater {
  bool operator()(const Node* a, const Node* b) const { return a->sequence_nr() < b->sequence_nr(); }
};

class Walk {
 public:
  explicit Walk(std::span<const at::Tensor> inputs) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i].defined() || !inputs[i].requires_grad()) continue;
      wanted_.push_back(torch::autograd::impl::gradient_edge(inputs[i]));
      positions_[wanted_.back().function.get()].push_back(i);
    }
  }

  std::vector<std::size_t> from(const edge_list& roots) {
    count_dependencies(roots);
    std::vector<std::size_t> order;
    reach(roots);
    while (!ready_.empty()) {
      const Node* node = ready_.top();
      ready_.pop();
      const auto found = positions_.find(node);
      if (found != positions_.end()) order.insert(order.end(), found->second.begin(), found->second.end());
      reach(edges_of(*node));
    }
    return order;
  }

 private:
  // What lies behind an input is none of the graph's business.
  edge_list edges_of(const Node& node) const {
    return positions_.contains(&node) ? edge_list() : node.next_edges();
  }

  void count_dependencies(const edge_list& roots) {
    std::vector<edge_list> open = {roots};
    while (!open.empty()) {
      const edge_list edges = std::move(open.back());
      open.pop_back();
      for (const auto& edge : edges) {
        const Node* node = edge.function.get();
        if (node != nullptr && dependencies_[node]++ == 0) open.push_back(edges_of(*node));
      }
    }
  }

  void reach(const edge_list& edges) {
    for (const auto& edge : edges) {
      const Node* node = edge.function.get();
      if (node != nullptr && --dependencies_.at(node) == 0) ready_.push(node);
    }
  }

  edge_list wanted_;  // keeps the accumulators of leaves alive
  std::unordered_map<const Node*, std::vector<std::size_t>> positions_;
  std::unordered_map<const Node*, std::size_t> dependencies_;  // edges that have not been followed yet
  std::priority_queue<const Node*, std::vector<const Node*>, RunsLater> ready_;
};

}  // namespace

std::vector<std::size_t> gradient_order(std::span<const at::Tensor> outputs,
                                        std::span<const at::Tensor> inputs) {
  edge_list roots;
  for (const at::Tensor& output : outputs) {
    if (output.defined() && output.requires_grad())
      roots.push_back(torch::autograd::impl::gradient_edge(output));
  }
  return Walk(inputs).from(roots);
}

}  // namespace rekindle::session
