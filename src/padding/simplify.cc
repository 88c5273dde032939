#include "src/padding/simplify.h"

#include <algorithm>
#include <string>

namespace rekindle::padding {
namespace {

using graph::Node;
using graph::Value;

bool holds_zero(const graph::ConstantTensor& ints) {
  const std::vector<std::int64_t> values = graph::int_values(ints);
  return std::ranges::find(values, 0) != values.end();
}

// Gather(Shape(x), i): x, and i; null when it is another node.
const Value* measured(const Node& node, std::int64_t& axis) {
  const Value* shape = node.is("Gather") ? node.input(0) : nullptr;
  const Node* producer = shape == nullptr ? nullptr : shape->producer();
  if (producer == nullptr || !producer->is("Shape") || !producer->attributes().empty()) return nullptr;
  const graph::ConstantPtr index = graph::constant_of(node.input(1));
  if (index == nullptr || index->dtype != graph::DType::kInt64 || index->numel() != 1) return nullptr;
  axis = graph::int_values(*index)[0];
  return producer->input(0);
}

}  // namespace

void join_reshapes(graph::Graph& graph) {
  for (const auto& node : graph.nodes()) {
    const Value* before = node->is("Reshape") ? node->input(0) : nullptr;
    const Node* inner = before == nullptr ? nullptr : before->producer();
    if (inner == nullptr || !inner->is("Reshape") || node->input(1) == nullptr) continue;
    const graph::ConstantPtr shape = graph::constant_of(node->input(1));
    const bool keeps_sizes = shape != nullptr && holds_zero(*shape);
    if (!keeps_sizes) node->set_input(0, inner->input(0));
  }
}

void ask_tokens_for_sizes(graph::Graph& graph, std::size_t tokens, const TokenSizes& sizes) {
  Value* asked = graph.inputs()[tokens];
  Value* shape = nullptr;  // of the tokens
  for (const auto& node : graph.nodes()) {
    std::int64_t axis = 0;
    const Value* value = measured(*node, axis);
    if (value == nullptr || value == asked || !sizes.knows(value)) continue;
    const int rank = sizes.rank(value), at = static_cast<int>(axis < 0 ? axis + rank : axis);
    if (at < 0 || at >= rank) continue;
    const bool is_batch = sizes.is_batch(value, at);
    if (!is_batch && !sizes.is_length(value, at)) continue;
    if (shape == nullptr)
      shape = graph.create_node({"Shape", "", {asked}, {}, 1}, graph.nodes().front().get())->output();
    const graph::ConstantPtr old = graph::constant_of(node->input(1));
    node->set_input(0, shape);
    node->set_input(
        1, graph.create_constant(graph::make_int64_constant({is_batch ? 0 : 1}, old->sizes), node.get()));
  }
}

}  // namespace rekindle::padding
