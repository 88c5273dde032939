// Computes nodes whose inputs are all constants, with the evaluator of the context; does nothing without one.
#include <algorithm>
#include <optional>
#include <string>

#include "src/base/log.h"
#include "src/graph/element.h"
#include "src/graph/op_info.h"
#include "src/graph/text/print.h"
#include "src/graph/torch_node.h"
#include "src/passes/pass.h"
#include "src/passes/substitute.h"

namespace rekindle::passes {
namespace {

using graph::ConstantPtr;
using graph::DType;
using graph::Node;
using graph::Value;

constexpr std::int64_t kUsualElement = 8;  // bytes; only complex128 is wider

bool is_foldable(const Node& node) {
  // How much an operator of PyTorch's returns, nobody here knows; the planner folds those.
  if (node.is("Constant") || node.inputs().empty() || graph::is_random(node) || graph::is_torch(node))
    return false;
  return std::ranges::all_of(node.inputs(), [](const Value* input) {
    return input == nullptr || graph::constant_of(input) != nullptr;
  });
}

std::optional<std::int64_t> times(std::optional<std::int64_t> a, std::int64_t b) {
  std::int64_t product = 0;
  if (!a || __builtin_mul_overflow(*a, b, &product)) return std::nullopt;
  return product;
}

// The number of elements of a tensor of the shape that `shape` lists.
std::optional<std::int64_t> numel_of_shape(const ConstantPtr& shape) {
  if (!graph::is_integral(shape->dtype)) return std::nullopt;
  std::optional<std::int64_t> numel = 1;
  for (std::int64_t i = 0; i < shape->numel(); ++i) {
    numel = times(numel, std::max<std::int64_t>(graph::read_int64(*shape, i), 0));
  }
  return numel;
}

// An upper bound of the bytes of one output, before anything is computed; nullopt when there is none.
std::optional<std::int64_t> largest_output(const Node& node) {
  const graph::TensorType& type = node.output()->type();
  if (const auto sizes = type.static_sizes(); sizes && type.dtype != DType::kUndefined) {
    return graph::byte_size(type.dtype, *sizes);
  }
  // The values of their inputs decide the size.
  for (const char* op : {"OneHot", "Pad", "Range", "Tile"}) {
    if (node.is(op)) return std::nullopt;
  }
  std::optional<std::int64_t> numel = 1;
  for (std::size_t i = 0; i < node.inputs().size(); ++i) {
    if (node.input(i) == nullptr) continue;
    const ConstantPtr constant = graph::constant_of(node.input(i));
    const bool is_shape = (node.is("ConstantOfShape") && i == 0) || (node.is("Expand") && i == 1);
    // All other ops broadcast, contract, pick or join: none gives more than twice the product of its inputs.
    const auto factor = is_shape ? numel_of_shape(constant) : std::max<std::int64_t>(constant->numel(), 1);
    numel = factor ? times(numel, *factor) : std::nullopt;
  }
  return times(numel, kUsualElement);
}

// Null where the node stays as it is.
Result<std::vector<ConstantPtr>> evaluate(const Node& node, const PassContext& context) {
  const auto bytes = largest_output(node);
  if (!bytes || *bytes > context.max_folded_bytes) return std::vector<ConstantPtr>{};
  auto results = context.evaluate(node);
  if (results.ok()) {
    if (results->size() == node.outputs().size()) return results;
    return internal_error("the evaluator gave " + std::to_string(results->size()) + " outputs for " +
                          describe(node));
  }
  if (results.error().code != ErrorCode::kUnsupported) {
    return Error{results.error().code, "folding " + describe(node) + ": " + results.error().message};
  }
  log_debug("not folded: " + describe(node) + ": " + results.error().message);
  return std::vector<ConstantPtr>{};
}

void replace(graph::Graph& graph, Node* node, const std::vector<ConstantPtr>& results) {
  for (std::size_t i = 0; i < results.size(); ++i) {
    Value* output = node->output(i);
    Value* constant = graph.create_constant(results[i], node);
    const std::string name = output->name();
    substitute(graph, output, constant);
    graph.claim_name(constant, name);  // a reader finds the same values, folded
  }
  graph.erase_node(node);
}

Result<bool> run(graph::Graph& graph, const PassContext& context) {
  if (!context.evaluate) return false;
  bool changed = false;
  for (auto position = graph.nodes().begin(); position != graph.nodes().end();) {
    Node* node = (position++)->get();
    if (!is_foldable(*node)) continue;
    REKINDLE_ASSIGN_OR_RETURN(const std::vector<ConstantPtr> results, evaluate(*node, context));
    if (results.empty()) continue;
    replace(graph, node, results);
    changed = true;
  }
  return changed;
}

REKINDLE_PASS("fold_constants", "Computes what depends on constants only", run);

}  // namespace
}  // namespace rekindle::passes
