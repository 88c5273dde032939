// Splits a batch norm in training into its statistics and the line from x to y, which costs one reading of
// memory: the backward then makes y again rather than holding it. A relu that alone reads y becomes part of
// the line.
//
// Only in float32, where sums are in float64 and round to eager's bits whatever their order. Statistics of
// the batch that anything but the gradient reads keep the operator that made them.
#include <algorithm>
#include <vector>

#include "src/graph/torch_node.h"
#include "src/passes/pass.h"
#include "src/passes/substitute.h"

namespace rekindle::passes {
namespace {

using graph::Graph;
using graph::kRekindleDomain;
using graph::Node;
using graph::Value;

bool is_gradient(const Node& node) { return node.is("BatchNormGradient", kRekindleDomain); }

bool is_only_read_by_gradients(const Graph& graph, const Value* value, std::size_t position) {
  return !graph.is_output(value) && std::ranges::all_of(value->uses(), [&](const graph::Use& use) {
    return is_gradient(*use.node) && use.index == position;
  });
}

bool is_number(const graph::Attribute* attribute) {
  const auto* number = attribute == nullptr ? nullptr : std::get_if<graph::ConstantPtr>(attribute);
  return number != nullptr && *number != nullptr && (*number)->numel() == 1;
}

bool can_split(const Graph& graph, const Node& node) {
  constexpr std::size_t kInputs = 5, kOutputs = 5;  // x, weight?, bias?, mean, variance
  if (!node.is("aten._native_batch_norm_legit_functional.default", graph::kTorchDomain)) return false;
  if (node.int_attribute("training", 0) == 0 || node.attribute("_computed") != nullptr) return false;
  if (node.inputs().size() != kInputs || node.outputs().size() != kOutputs) return false;
  if (!is_number(node.attribute("momentum")) || !is_number(node.attribute("eps"))) return false;
  if (node.input(0) == nullptr || node.input(3) == nullptr) return false;
  const graph::TensorType& x = node.input(0)->type();
  if (x.dtype != graph::DType::kFloat32) return false;
  if (!x.dims || x.dims->size() < 2) return false;
  const bool one_dtype = std::ranges::all_of(
      node.inputs(), [&](const Value* input) { return input == nullptr || input->type().dtype == x.dtype; });
  return one_dtype && is_only_read_by_gradients(graph, node.output(1), 2) &&
         is_only_read_by_gradients(graph, node.output(2), 3);
}

void split(Graph& graph, Node* norm) {
  Value* const x = norm->input(0);
  if (!graph.opsets().contains(kRekindleDomain))
    graph.set_opset(std::string(kRekindleDomain), graph::kRekindleOpset);
  const std::vector<Value*> inputs{x, norm->input(3), norm->input(4), norm->input(1), norm->input(2)};
  Node* statistics =
      graph.create_node({"BatchStatistics",
                         std::string(kRekindleDomain),
                         inputs,
                         {{"eps", *norm->attribute("eps")}, {"momentum", *norm->attribute("momentum")}},
                         6},
                        norm);
  const std::vector<Value*> line{x, statistics->output(0), statistics->output(4), statistics->output(5)};
  Node* normalize = graph.create_node({"BatchNormalize", std::string(kRekindleDomain), line, {}, 1}, norm);
  for (Node* made : {statistics, normalize}) made->set_origin(*norm);
  for (Value* made : statistics->outputs()) made->set_type(norm->input(3)->type());
  normalize->output()->set_type(x->type());
  substitute(graph, norm->output(0), normalize->output());
  for (std::size_t i = 1; i < norm->outputs().size(); ++i)
    substitute(graph, norm->output(i), statistics->output(i - 1));
  graph.erase_node(norm);
}

bool is_relu(const Node& node) {
  return node.is("Relu") || (node.is("aten.relu.default", graph::kTorchDomain) && !graph::has_tape(node));
}

// The relu that alone reads what a batch norm makes.
Node* relu_after(const Graph& graph, const Node& node) {
  if (!node.is("BatchNormalize", kRekindleDomain) || node.int_attribute("relu", 0) != 0) return nullptr;
  const Value* y = node.output();
  if (graph.is_output(y) || y->uses().size() != 1) return nullptr;
  Node* reader = y->uses()[0].node;
  return is_relu(*reader) ? reader : nullptr;
}

void add_relu(Graph& graph, Node* normalize, Node* relu) {
  normalize->set_attribute("relu", std::int64_t{1});
  substitute(graph, relu->output(), normalize->output());
  graph.erase_node(relu);
}

Result<bool> run(Graph& graph, const PassContext&) {
  std::vector<Node*> nodes;
  for (const auto& node : graph.nodes()) nodes.push_back(node.get());
  bool changed = false;
  for (Node* node : nodes) {
    if (!can_split(graph, *node)) continue;
    split(graph, node);
    changed = true;
  }
  for (auto position = graph.nodes().begin(); position != graph.nodes().end(); ++position) {
    Node* relu = relu_after(graph, **position);
    if (relu == nullptr) continue;
    add_relu(graph, position->get(), relu);
    changed = true;
  }
  return changed;
}

REKINDLE_PASS("split_batch_norms", "Splits batch norms in training, and makes relus a part of them", run);

}  // namespace
}  // namespace rekindle::passes
