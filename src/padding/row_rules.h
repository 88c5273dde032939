// The rules by which RowStates are found, one node at a time. Internal to the room.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "src/padding/row_states.h"

namespace rekindle::padding {

// A rule answers with this: how the node uses rows, and the states of its outputs where it knows them.
struct Rule {
  NodeUse use;
  std::vector<State> outputs;
};

// Gives a rule what it may ask about the graph, and a place to note what it finds.
struct RuleContext {
  const graph::Graph& graph;
  const TokenSizes& sizes;
  RowStates& found;

  const State& state(const graph::Node& node, std::size_t input) const { return found.of(node.input(input)); }
  int rank(const graph::Value* value) const { return sizes.rank(value); }
  // Returns true if no input is tracked, except those listed.
  bool only_tracked(const graph::Node& node, std::initializer_list<std::size_t> inputs) const;
  // The ints of a constant input; nullopt when it is absent or not constant.
  static std::optional<std::vector<std::int64_t>> ints(const graph::Node& node, std::size_t input);
  // The number of a constant with one element.
  static std::optional<double> number(const graph::Value* value);
};

// nullopt where the rule does not know the node, or what it does.
std::optional<Rule> row_wise_rule(const RuleContext& context, graph::Node& node);
std::optional<Rule> attention_rule(const RuleContext& context, graph::Node& node);
std::optional<Rule> sink_rule(const RuleContext& context, graph::Node& node);

// Ops whose outputs have at each place what follows from their inputs at that place, inputs broadcast.
bool is_elementwise(const graph::Node& node);
// The dimensions that an op works along, as positive numbers; nullopt when they are not known. Of Unsqueeze
// those of its output.
std::optional<std::vector<int>> axes_of(const RuleContext& context, const graph::Node& node);

}  // namespace rekindle::padding
