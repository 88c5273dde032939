// Removes nodes whose first output always equals an input, as a rule their first, bit by bit.
#include <algorithm>
#include <numeric>

#include "src/graph/element.h"
#include "src/graph/op_info.h"
#include "src/graph/torch_node.h"
#include "src/passes/pass.h"
#include "src/passes/substitute.h"

namespace rekindle::passes {
namespace {

using graph::Dim;
using graph::kRekindleDomain;
using graph::Node;
using graph::TensorType;
using graph::Value;

bool is_reshape_to_itself(const Node& node) {
  const TensorType& type = node.input(0)->type();
  if (graph::have_same_shape(type, node.output()->type())) return true;
  const auto shape = graph::constant_of(node.input(1));
  return shape != nullptr && shape->dtype == graph::DType::kInt64 && type.static_sizes() &&
         graph::int_values(*shape) == *type.static_sizes() &&
         std::ranges::find(*type.dims, Dim::of(0)) == type.dims->end();  // there 0 means: as the input
}

bool is_identity_transpose(const Node& node) {
  const std::vector<std::int64_t> perm = node.ints_attribute("perm", {});
  std::vector<std::int64_t> straight(perm.size());
  std::iota(straight.begin(), straight.end(), 0);
  return !perm.empty() && perm == straight;
}

bool is_dropout_in_evaluation(const Node& node, const graph::Graph& graph) {
  if (!node.is("Dropout") || graph::is_random(node)) return false;
  return node.outputs().size() == 1 || (node.output(1)->uses().empty() && !graph.is_output(node.output(1)));
}

bool is_cast_to_own_dtype(const Node& node) {
  const graph::DType dtype = node.input(0)->type().dtype;
  if (dtype == graph::DType::kUndefined) return false;
  if (node.is("CastLike")) return node.input(1)->type().dtype == dtype;
  return node.is("Cast") && node.int_attribute("to", 0) == static_cast<std::int64_t>(dtype);
}

bool is_all_ones(const graph::ConstantTensor& constant) {
  if (!graph::is_real(constant.dtype)) return false;
  for (std::int64_t i = 0; i < constant.numel(); ++i) {
    if (graph::read_double(constant, i) != 1.0) return false;
  }
  return true;
}

// No user of the graph can tell the value from one that it equals: nothing of it is an input or an output,
// nor lies in the memory of one. To eager `w * 1` is a tensor of its own: it stays as it was when `w` is
// written before the backward.
bool is_inner(const Value* value, const graph::Graph& graph) {
  return value->producer() != nullptr && !graph::is_view(*value->producer()) && !graph.is_output(value) &&
         std::ranges::none_of(value->uses(), [](const graph::Use& use) { return graph::is_view(*use.node); });
}

bool is_product_with_one(const Node& node, const graph::Graph& graph) {
  if (!node.is("Mul")) return false;
  const auto factor = graph::constant_of(node.input(1));
  return factor != nullptr && graph::have_same_shape(node.input(0)->type(), node.output()->type()) &&
         node.input(0)->type().dtype == node.output()->type().dtype && is_all_ones(*factor) &&
         is_inner(node.input(0), graph) && is_inner(node.output(), graph);
}

// A functional batch norm returns its new statistics as copies of the old ones; an export copies these once
// more, over the old ones. Nothing else reads them, and no gradient passes.
bool is_copy_of_new_statistics(const Node& node, const graph::Graph& graph) {
  if (!node.is("aten.copy.default", graph::kTorchDomain) || graph::has_tape(node)) return false;
  const Value* const made = node.input(1);
  const Node* const norm = made == nullptr ? nullptr : made->producer();
  constexpr std::size_t kMean = 3, kVariance = 4;  // among inputs and outputs
  return norm != nullptr &&
         norm->is("aten._native_batch_norm_legit_functional.default", graph::kTorchDomain) &&
         (made->index() == kMean || made->index() == kVariance) &&
         norm->input(made->index()) == node.input(0) && made->uses().size() == 1 && !graph.is_output(made);
}

bool equals_first_input(const Node& node, const graph::Graph& graph) {
  if (node.inputs().empty() || node.input(0) == nullptr) return false;
  if (node.is("Identity") || is_dropout_in_evaluation(node, graph) || is_cast_to_own_dtype(node)) return true;
  if (is_product_with_one(node, graph)) return true;
  if (node.is("Reshape")) return is_reshape_to_itself(node);
  if (node.is("Transpose")) return is_identity_transpose(node);
  if (node.is("Expand")) return graph::have_same_shape(node.input(0)->type(), node.output()->type());
  if (node.is("Concat") || node.is("Sum") || node.is("Max") || node.is("Min"))
    return node.inputs().size() == 1;
  if (node.is("SumToSizeOf", kRekindleDomain) || node.is("ReshapeLike", kRekindleDomain) ||
      node.is("ExpandLike", kRekindleDomain)) {
    return graph::have_same_shape(node.input(0)->type(), node.input(1)->type());
  }
  return false;
}

Result<bool> run(graph::Graph& graph, const PassContext&) {
  bool changed = false;
  for (auto position = graph.nodes().begin(); position != graph.nodes().end();) {
    Node* node = (position++)->get();
    const bool is_copy = is_copy_of_new_statistics(*node, graph);
    if (!is_copy && !equals_first_input(*node, graph)) continue;
    changed |= substitute(graph, node->output(), node->input(is_copy ? 1 : 0));
    if (graph.is_output(node->output())) continue;
    graph.erase_node(node);
    changed = true;
  }
  return changed;
}

REKINDLE_PASS("eliminate_identity", "Removes nodes that return an input", run);

}  // namespace
}  // namespace rekindle::passes
