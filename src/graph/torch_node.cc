#include "src/graph/torch_node.h"

#include <algorithm>

namespace rekindle::graph {
namespace {

bool all_below(const std::vector<std::int64_t>& positions, std::size_t end) {
  return std::ranges::all_of(positions,
                             [end](std::int64_t i) { return i >= 0 && static_cast<std::size_t>(i) < end; });
}

std::string wrong_operator(const Node& node) {
  const std::size_t outputs = node.outputs().size();
  const std::int64_t results = node.int_attribute("_results", 1);
  if (results < 1 ||
      (static_cast<std::size_t>(results) != outputs && static_cast<std::size_t>(results) + 1 != outputs)) {
    return "it has " + std::to_string(outputs) + " outputs, but _results is " + std::to_string(results);
  }
  if (!all_below(node.ints_attribute("_differentiable", {}), static_cast<std::size_t>(results)))
    return "_differentiable names an output that is no result";
  if (!all_below(node.ints_attribute("_tracked", {}), node.inputs().size()))
    return "_tracked names an input that is not there";
  if (node.int_attribute("_own", 0) < 0) return "_own is negative";
  if (!all_below(node.ints_attribute("_needs", {}), node.inputs().size()))
    return "_needs names an input that is not there";
  return {};
}

std::string wrong_gradient(const Node& node) {
  const std::int64_t cotangents = node.int_attribute("cotangents", 1);
  const std::size_t inputs = node.inputs().size(), outputs = node.outputs().size();
  if (cotangents < 1 || outputs > inputs || static_cast<std::size_t>(cotangents) != inputs - outputs - 1) {
    return std::to_string(inputs) + " inputs do not fit " + std::to_string(cotangents) + " cotangents and " +
           std::to_string(outputs) + " outputs";
  }
  const Value* tape = node.input(static_cast<std::size_t>(cotangents));
  const Node* producer = tape == nullptr ? nullptr : tape->producer();
  if (producer == nullptr || !has_tape(*producer) || tape->index() != torch_results(*producer))
    return "input " + std::to_string(cotangents) + " is not a tape";
  if (torch_results(*producer) != static_cast<std::size_t>(cotangents))
    return "the tape is of " + std::to_string(torch_results(*producer)) + " results, not of " +
           std::to_string(cotangents);
  for (std::size_t i = static_cast<std::size_t>(cotangents) + 1; i < inputs; ++i) {
    if (node.input(i) == nullptr) return "input " + std::to_string(i) + " is absent but required";
  }
  return {};
}

}  // namespace

bool is_differentiable_result(const Node& node, std::size_t index) {
  const auto differentiable = node.ints_attribute("_differentiable", {});
  return std::ranges::find(differentiable, static_cast<std::int64_t>(index)) != differentiable.end();
}

bool is_host_gradient(const Node& node) {
  return is_torch_gradient(node) && node.input(gradient_cotangents(node))->producer()->op_type() == kCallHost;
}

std::string wrong_torch_attributes(const Node& node) {
  if (is_torch(node)) return wrong_operator(node);
  return is_torch_gradient(node) ? wrong_gradient(node) : std::string();
}

}  // namespace rekindle::graph
