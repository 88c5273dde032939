#include "src/padding/row_states.h"

#include <algorithm>

#include "src/graph/element.h"
#include "src/graph/torch_node.h"
#include "src/padding/row_rules.h"

namespace rekindle::padding {
namespace {

// Where dimensions of batch and length come first, they are rows wherever they come from: whether their rows
// are needed is up to those who read them.
State leading_state(const TokenSizes& sizes, const graph::Value* value) {
  State state;
  const Leading leading = sizes.leading(value);
  if (leading == Leading::kNo) return state;
  state.kind = Kind::kRows;
  if (leading == Leading::kFlat) {
    state.flat = 0;
  } else {
    state.batch = 0;
    state.length = 1;
  }
  return state;
}

bool knows_all(const TokenSizes& sizes, const graph::Node& node) {
  const auto knows = [&](const graph::Value* value) { return value == nullptr || sizes.knows(value); };
  const std::size_t tape = graph::has_tape(node) ? 1 : 0;
  return std::ranges::all_of(node.inputs(), knows) &&
         std::ranges::all_of(node.outputs().begin(), node.outputs().end() - static_cast<std::ptrdiff_t>(tape),
                             knows);
}

void visit(const RuleContext& context, graph::Node& node) {
  std::optional<Rule> rule;
  if (knows_all(context.sizes, node)) {
    for (const auto find : {sink_rule, attention_rule, row_wise_rule}) {
      if (!rule) rule = find(context, node);
    }
  }
  if (rule) context.found.uses[&node] = rule->use;
  for (std::size_t i = 0; i < node.outputs().size(); ++i) {
    State state = rule && i < rule->outputs.size() ? rule->outputs[i] : State();
    if (!state.is_tracked()) state = leading_state(context.sizes, node.output(i));
    if (state.is_tracked()) context.found.states[node.output(i)] = std::move(state);
  }
}

}  // namespace

const State& RowStates::of(const graph::Value* value) const {
  static const State kUntracked;
  const auto state = states.find(value);
  return state == states.end() ? kUntracked : state->second;
}

NodeUse RowStates::of(const graph::Node* node) const {
  const auto use = uses.find(node);
  return use == uses.end() ? NodeUse() : use->second;
}

bool RuleContext::only_tracked(const graph::Node& node, std::initializer_list<std::size_t> inputs) const {
  for (std::size_t i = 0; i < node.inputs().size(); ++i) {
    if (std::ranges::find(inputs, i) == inputs.end() && state(node, i).is_tracked()) return false;
  }
  return true;
}

std::optional<std::vector<std::int64_t>> RuleContext::ints(const graph::Node& node, std::size_t input) {
  const graph::Value* value = node.input(input);
  const graph::ConstantPtr constant = value == nullptr ? nullptr : graph::constant_of(value);
  if (constant == nullptr || constant->dtype != graph::DType::kInt64) return std::nullopt;
  return graph::int_values(*constant);
}

std::optional<double> RuleContext::number(const graph::Value* value) {
  const graph::ConstantPtr constant = value == nullptr ? nullptr : graph::constant_of(value);
  if (constant == nullptr || constant->numel() != 1 || !graph::is_real(constant->dtype)) return std::nullopt;
  return graph::scalar_value(*constant);
}

RowStates find_row_states(const graph::Graph& graph, const TokenSizes& sizes) {
  RowStates found;
  for (const graph::Value* input : graph.inputs()) {
    State state = leading_state(sizes, input);
    if (state.is_tracked()) found.states[input] = std::move(state);
  }
  const RuleContext context{graph, sizes, found};
  for (const auto& node : graph.nodes()) visit(context, *node);
  return found;
}

}  // namespace rekindle::padding
