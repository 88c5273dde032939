// Rules of ops that end rows: losses, which ignore some, and selections of some positions.
#include <algorithm>

#include "src/padding/row_rules.h"

namespace rekindle::padding {
namespace {

using graph::Node;

std::optional<Rule> loss(const RuleContext& context, Node& node) {
  const State &scores = context.state(node, 0), &target = context.state(node, 1);
  if (scores.kind != Kind::kRows || scores.flat != 0 || !target.same_rows(scores) ||
      context.rank(node.input(0)) != 2 || !context.only_tracked(node, {0, 1}))
    return std::nullopt;
  if (node.outputs().size() > 1 &&
      (!node.output(1)->uses().empty() || context.graph.is_output(node.output(1))))
    return std::nullopt;
  if (node.string_attribute("reduction", "mean") == "none") {
    State rows{Kind::kRows};
    rows.flat = 0;
    return Rule{{Use::kRowWise, -1}, {rows, rows}};
  }
  context.found.losses.push_back(&node);
  return Rule{{Use::kLoss, -1}, {}};
}

// x[:, 0], say.
std::optional<Rule> selection(const RuleContext& context, const Node& node) {
  const State& state = context.state(node, 0);
  const auto axes = axes_of(context, node);
  const auto positions = RuleContext::ints(node, 1);
  if (!state.leads() || state.flat >= 0 || !axes || axes->at(0) != state.length || !positions ||
      context.rank(node.input(1)) > 1)
    return std::nullopt;
  context.found.selections.push_back({&node, *positions});
  return Rule{{Use::kSelection, -1}, {}};
}

// Of rows that have been multiplied with zero where they do not count: a mean over what is no padding, say.
std::optional<Rule> sum(const RuleContext& context, const Node& node) {
  const State& state = context.state(node, 0);
  if (state.kind != Kind::kRows || state.weight < 0 || node.int_attribute("noop_with_empty_axes", 0) != 0)
    return std::nullopt;
  if (node.input(1) != nullptr) {
    const auto axes = axes_of(context, node);
    const int rows = state.flat >= 0 ? state.flat : state.length;
    if (!axes || std::ranges::find(*axes, rows) == axes->end()) return std::nullopt;
  }
  context.found.sums.push_back(static_cast<std::size_t>(state.weight));
  return Rule{{Use::kSum, -1}, {}};
}

}  // namespace

std::optional<Rule> sink_rule(const RuleContext& context, Node& node) {
  if (node.is("CrossEntropyLoss", graph::kRekindleDomain)) return loss(context, node);
  if (node.is("Gather")) return selection(context, node);
  if (node.is("ReduceSum") || node.is("ReduceMean")) return sum(context, node);
  return std::nullopt;
}

}  // namespace rekindle::padding
