// Turns the sum of two partial gradients of one weight into one op that adds to what is there: a weight that
// is used twice, such as a tied embedding, then needs no second buffer of its size.
//
// Only sums that the gradient walk made (Add with accumulate = 1) are touched,
// so no sum of the model changes its order.
#include <array>
#include <optional>
#include <unordered_map>
#include <vector>

#include "src/graph/op_info.h"
#include "src/passes/pass.h"
#include "src/passes/substitute.h"

namespace rekindle::passes {
namespace {

using graph::Node;
using graph::Value;

// The position of the absent sum, when `value` is made for this sum alone by an op that can add to one.
std::optional<std::size_t> base_position(const graph::Graph& graph, const Value* value) {
  const Node* maker = value->producer();
  if (maker == nullptr || value->uses().size() != 1 || graph.is_output(value)) return std::nullopt;
  const auto base = graph::sum_input(*maker);
  return base && maker->input(*base) == nullptr ? base : std::nullopt;
}

using Order = std::unordered_map<const Node*, std::size_t>;

// The summand that is made last adds to the other one, so that neither has to wait.
std::array<std::size_t, 2> sides(const Node& sum, const Order& order) {
  const auto made = [&](std::size_t side) {
    const Node* maker = sum.input(side)->producer();
    return maker == nullptr ? 0 : order.at(maker) + 1;
  };
  return made(0) > made(1) ? std::array<std::size_t, 2>{0, 1} : std::array<std::size_t, 2>{1, 0};
}

bool fuse(graph::Graph& graph, Node* sum, Order& order) {
  for (const std::size_t side : sides(*sum, order)) {
    const auto base = base_position(graph, sum->input(side));
    if (!base) continue;
    Node* maker = sum->input(side)->producer();
    graph::NodeSpec spec{maker->op_type(), maker->domain(), maker->inputs(), maker->attributes(), 1};
    spec.inputs.resize(*base, nullptr);
    spec.inputs.push_back(sum->input(1 - side));
    Node* fused = graph.create_node(std::move(spec), sum);
    order[fused] = order.at(sum);
    fused->set_origin(*maker);
    fused->output()->set_type(sum->output()->type());
    substitute(graph, sum->output(), fused->output());
    graph.erase_node(sum);
    graph.erase_node(maker);
    return true;
  }
  return false;
}

Result<bool> run(graph::Graph& graph, const PassContext&) {
  std::vector<Node*> sums;
  Order order;
  for (const auto& node : graph.nodes()) {
    order.emplace(node.get(), order.size());
    const bool accumulation = node->is("Add") && graph::sum_input(*node);
    if (accumulation && node->input(0) != node->input(1)) sums.push_back(node.get());
  }
  bool changed = false;
  for (Node* sum : sums) changed = fuse(graph, sum, order) || changed;
  return changed;
}

REKINDLE_PASS("fuse_accumulation", "Adds partial gradients of a weight into one buffer", run);

}  // namespace
}  // namespace rekindle::passes
