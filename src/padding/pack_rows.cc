#include "src/padding/pack_rows.h"

#include <algorithm>
#include <unordered_map>

#include "src/graph/op_info.h"
#include "src/padding/packed_nodes.h"
#include "src/padding/row_needs.h"

namespace rekindle::padding {
namespace {

using graph::Node;
using graph::Value;

// The graph that answers the questions, and what they are. Values are those of `forward`.
class Asking {
 public:
  explicit Asking(const graph::Graph& forward) : graph_(forward.clone(&clone_of_)) {
    while (!graph_->outputs().empty()) graph_->erase_output(graph_->outputs().size() - 1);
  }

  std::size_t output_of(const Value* value) {
    const auto [entry, is_new] = outputs_.try_emplace(value, graph_->outputs().size());
    if (is_new) graph_->add_output(clone_of_.at(value));
    return entry->second;
  }

  // kUnsupported when the answers take as much as what they are to save, or random numbers.
  Result<std::unique_ptr<graph::Graph>> finish() {
    for (auto position = graph_->nodes().end(); position != graph_->nodes().begin();) {
      Node* node = std::prev(position)->get();
      const bool needed = std::ranges::any_of(node->outputs(), [&](const Value* output) {
        return !output->uses().empty() || graph_->is_output(output);
      });
      needed ? static_cast<void>(--position) : graph_->erase_node(node);
    }
    for (const auto& node : graph_->nodes()) {
      if (graph::is_random(*node) || is_product(*node))
        return unsupported("which rows are needed depends on " + std::string(node->op_type()) +
                           (node->source().empty() ? "" : " at " + node->source()));
    }
    return std::move(graph_);
  }

 private:
  std::unordered_map<const Value*, Value*> clone_of_;
  std::unordered_map<const Value*, std::size_t> outputs_;
  std::unique_ptr<graph::Graph> graph_;
};

RowQuestions questions_of(const RowStates& states, const RowNeeds& needs, Asking& asking) {
  RowQuestions questions;
  for (const Node* loss : states.losses)
    questions.targets.push_back(
        {asking.output_of(loss->input(1)), loss->int_attribute("ignore_index", -100)});
  for (const std::size_t sum : states.sums)
    questions.weights.push_back({asking.output_of(states.weights[sum].value), states.weights[sum].negated});
  for (const Selection& selection : states.selections) {
    if (needs.may_leave_out.contains(selection.node->input(0)))
      questions.positions.insert(questions.positions.end(), selection.positions.begin(),
                                 selection.positions.end());
  }
  for (const Attention* attention : needs.attentions) {
    RowQuestions::Sight sight{{}, attention->causal, attention->queries_are_rows, attention->rank};
    for (const std::size_t mask : attention->masks)
      sight.masks.push_back({asking.output_of(states.masks[mask].value), states.masks[mask].how});
    if (std::ranges::find(questions.sights, sight) == questions.sights.end())
      questions.sights.push_back(std::move(sight));
  }
  return questions;
}

// Nothing to begin with: then no row is needed at all, which nobody means.
bool asks_nothing(const RowQuestions& questions) {
  return questions.targets.empty() && questions.weights.empty() && questions.positions.empty() &&
         std::ranges::all_of(questions.sights, &RowQuestions::Sight::queries_are_rows);
}

}  // namespace

Result<PackedGraph> pack_rows(const graph::Graph& forward, std::size_t tokens, const TokenSizes& sizes,
                              std::size_t whole_results) {
  const RowStates states = find_row_states(forward, sizes);
  const RowNeeds needs = find_row_needs(forward, states, whole_results);
  Asking asking(forward);
  PackedGraph packed;
  packed.tokens = tokens;
  packed.questions = questions_of(states, needs, asking);
  if (asks_nothing(packed.questions))
    return unsupported("no loss that ignores targets, and no token that is selected, says which rows count");
  REKINDLE_ASSIGN_OR_RETURN(packed.question_graph, asking.finish());
  REKINDLE_RETURN_IF_ERROR(pack_nodes(forward, sizes, states, needs, packed));
  return packed;
}

}  // namespace rekindle::padding
