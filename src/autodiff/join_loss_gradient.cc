#include "src/autodiff/join_loss_gradient.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "src/graph/op_info.h"

namespace rekindle::autodiff {
namespace {

using graph::Graph;
using graph::kRekindleDomain;
using graph::Node;
using graph::Value;

// The nodes that the joined one stands for.
struct Match {
  Node* loss = nullptr;     // the gradient of the scores
  Node* reshape = nullptr;  // of that, in the shape of the product's result; null where they are the same
  Node* product = nullptr;  // the gradient of x
  Node* weight = nullptr;
  Node* bias = nullptr;  // null for none
};

bool is_matrix(const Value* value) { return value->type().dims && value->type().dims->size() == 2; }

// Whether the caller gets the memory that the scores lie in.
bool leave(const Graph& graph, const Value* scores) {
  return graph.is_output(scores) || graph.is_output(graph::base_of(scores));
}

// Sorts a reader of the gradient into its place; false if there is none for it.
bool add_reader(const graph::Use& use, Match& match) {
  Node* const node = use.node;
  const auto take = [&](Node*& place) { return use.index == 0 && std::exchange(place, node) == nullptr; };
  if (node->is("MatMul")) return take(match.product) && is_matrix(node->input(1));
  if (node->is("LinearWeightGradient", kRekindleDomain))
    return take(match.weight) && node->inputs().size() == 2;
  if (node->is("SumToSizeOf", kRekindleDomain)) {
    const auto& like = node->input(1)->type().dims;
    return take(match.bias) && like && like->size() == 1;
  }
  return false;
}

// Whether the sum has an element for each row of the weight: a bias may be a single number.
bool sums_rows(const Match& match) {
  const auto sizes = match.bias->input(1)->type().static_sizes(),
             weight = match.product->input(1)->type().static_sizes();
  return sizes && weight && sizes->at(0) == weight->at(0);
}

// Whether both gradients are those of one layer: its input is read by one, and has the shape of the other.
// That of another layer may have another, where scores are the sum of two.
bool are_of_one_layer(const Match& match) {
  return graph::have_same_shape(match.weight->input(1)->type(), match.product->output()->type()) &&
         graph::have_same_shape(match.product->input(1)->type(), match.weight->output()->type());
}

// Of `before`, a node that `value` is made earlier than.
bool is_made_before(const Graph& graph, const Value* value, const Node* before) {
  if (value->producer() == nullptr) return true;
  for (const auto& node : graph.nodes()) {
    if (node.get() == before) return false;
    if (node.get() == value->producer()) return true;
  }
  return false;
}

bool matches(const Graph& graph, Node* loss, Match& match) {
  match.loss = loss;
  const Value* scores = loss->input(1);
  if (!is_matrix(scores) || !leave(graph, scores)) return false;
  const Value* gradient = loss->output();
  if (gradient->uses().size() == 1 && gradient->uses()[0].node->is("ReshapeLike", kRekindleDomain)) {
    match.reshape = gradient->uses()[0].node;
    if (match.reshape->input(1) != graph::base_of(scores) || graph.is_output(gradient)) return false;
    gradient = match.reshape->output();
  }
  if (graph.is_output(gradient)) return false;
  const bool all_known =
      std::ranges::all_of(gradient->uses(), [&](const graph::Use& use) { return add_reader(use, match); });
  return all_known && match.product != nullptr && match.weight != nullptr && are_of_one_layer(match) &&
         (match.bias == nullptr || sums_rows(match)) && is_made_before(graph, match.weight->input(1), loss) &&
         is_made_before(graph, match.product->input(1), loss);
}

void join(Graph& graph, const Match& match) {
  std::vector<Value*> inputs = match.loss->inputs();
  inputs.resize(4);
  inputs.insert(inputs.end(), {match.weight->input(1), match.product->input(1), match.loss->input(4)});
  std::vector<Node*> gone{match.product, match.weight};
  if (match.bias != nullptr) gone.push_back(match.bias);
  Node* joined = graph.create_node({.op_type = "LinearCrossEntropyGradient",
                                    .domain = std::string(kRekindleDomain),
                                    .inputs = std::move(inputs),
                                    .attributes = match.loss->attributes(),
                                    .outputs = gone.size()},
                                   match.loss);
  joined->set_origin(*match.product);
  for (std::size_t i = 0; i < gone.size(); ++i) {
    Value *from = gone[i]->output(), *to = joined->output(i);
    const std::string name = from->name();
    to->set_type(from->type());
    graph.replace_all_uses(from, to);
    graph.erase_node(gone[i]);
    graph.rename(to, name);
  }
  if (match.reshape != nullptr) graph.erase_node(match.reshape);
  graph.erase_node(match.loss);
}

}  // namespace

void join_loss_gradient(JointGraph& joint) {
  std::vector<Node*> losses;
  for (const auto& node : joint.graph->nodes()) {
    if (node->is("CrossEntropyLossGradient", kRekindleDomain)) losses.push_back(node.get());
  }
  for (Node* loss : losses) {
    Match match;
    if (matches(*joint.graph, loss, match)) join(*joint.graph, match);
  }
}

}  // namespace rekindle::autodiff
