#include "src/padding/row_needs.h"

#include <algorithm>
#include <ranges>

#include "src/graph/op_info.h"

namespace rekindle::padding {
namespace {

using graph::Node;
using graph::Value;

class Search {
 public:
  Search(const graph::Graph& graph, const RowStates& states, std::size_t whole_results)
      : graph_(graph), states_(states) {
    const auto& outputs = graph.outputs();
    for (std::size_t i = 0; i < outputs.size(); ++i)
      (i + whole_results < outputs.size() ? results_ : whole_).insert(outputs[i]);
  }

  RowNeeds run() {
    // Backwards, so that a value is seen after everything that uses it.
    for (const auto& node : graph_.nodes() | std::views::reverse) {
      for (const Value* output : node->outputs()) visit(output);
      if (precedes_attention(*node)) needs_.before_attention.insert(node.get());
    }
    for (const Value* input : graph_.inputs()) visit(input);
    for (const Attention& attention : states_.attentions) {
      if (tolerates(*attention.node, 1)) needs_.attentions.push_back(&attention);
    }
    return std::move(needs_);
  }

 private:
  void visit(const Value* value) {
    const bool fits_result =
        states_.of(value).kind == Kind::kRows && graph::is_differentiable(value->type().dtype);
    if (whole_.contains(value) || (results_.contains(value) && !fits_result)) return;
    const auto is_fine = [&](const graph::Use& use) { return tolerates(*use.node, use.index); };
    if (std::ranges::all_of(value->uses(), is_fine)) needs_.may_leave_out.insert(value);
  }

  // Whether the node needs no row of that input that is left out.
  bool tolerates(const Node& node, std::size_t input) const {
    if (graph::is_shape_only(node, input)) return true;
    const NodeUse use = states_.of(&node);
    if (use.mask_input == static_cast<int>(input)) return false;
    switch (use.use) {
      case Use::kUnknown:
        return false;
      case Use::kLoss:
      case Use::kSelection:
      case Use::kSum:
        return true;
      case Use::kRowWise:
      case Use::kScoring:
        return leaves_out(node);
      case Use::kAttention:
        return !states_.of(node.output()).is_tracked() || leaves_out(node);
    }
    return false;
  }

  bool leaves_out(const Node& node) const {
    return std::ranges::all_of(node.outputs(),
                               [&](const Value* output) { return needs_.may_leave_out.contains(output); });
  }

  bool precedes_attention(const Node& node) const {
    const auto leads_there = [&](const graph::Use& use) {
      const Use kind = states_.of(use.node).use;
      return kind == Use::kAttention || kind == Use::kScoring || needs_.before_attention.contains(use.node);
    };
    return std::ranges::any_of(node.outputs(), [&](const Value* output) {
      return std::ranges::any_of(output->uses(), leads_there);
    });
  }

  const graph::Graph& graph_;
  const RowStates& states_;
  std::unordered_set<const Value*> results_, whole_;
  RowNeeds needs_;
};

bool reads_rows(const Node& node, const RowStates& states) {
  for (std::size_t i = 0; i < node.inputs().size(); ++i) {
    const Value* input = node.input(i);
    if (input != nullptr && !graph::is_shape_only(node, i) && states.of(input).is_tracked() &&
        graph::is_differentiable(input->type().dtype))
      return true;
  }
  return false;
}

}  // namespace

std::string last_that_needs_all(const graph::Graph& graph, const RowStates& states) {
  for (const auto& node : graph.nodes() | std::views::reverse) {
    if (states.of(node.get()).use == Use::kUnknown && reads_rows(*node, states))
      return graph::qualified_name(node->domain(), node->op_type()) +
             (node->source().empty() ? "" : " at " + node->source());
  }
  return "";
}

RowNeeds find_row_needs(const graph::Graph& graph, const RowStates& states, std::size_t whole_results) {
  return Search(graph, states, whole_results).run();
}

}  // namespace rekindle::padding
