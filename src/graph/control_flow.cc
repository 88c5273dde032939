#include "src/graph/control_flow.h"

namespace rekindle::graph {
namespace {

const Graph* find_body(const Node& node, std::string_view name) {
  const Attribute* attribute = node.attribute(name);
  const auto* body = attribute == nullptr ? nullptr : std::get_if<GraphPtr>(attribute);
  return body == nullptr ? nullptr : body->get();
}

std::string wrong_if(const Node& node) {
  const Graph *then_branch = find_body(node, "then_branch"), *else_branch = find_body(node, "else_branch");
  if (then_branch == nullptr || else_branch == nullptr) return "it needs then_branch and else_branch";
  if (node.input(0) == nullptr) return "it needs a condition";
  if (node.inputs().size() != 1 + then_branch->inputs().size() + else_branch->inputs().size())
    return "its inputs are not the condition and the inputs of both branches";
  for (const Graph* branch : {then_branch, else_branch}) {
    if (branch->outputs().size() < node.outputs().size()) return "a branch has fewer outputs than the node";
  }
  return {};
}

// `own`: inputs before the carried ones; `results`: outputs of the body before those of the node; `hands_on`:
// whether the body's results begin with the carried values.
std::string wrong_loop(const Node& node, std::size_t own, std::size_t elements, std::size_t results,
                       bool hands_on) {
  const Graph* body = find_body(node, "body");
  if (body == nullptr) return "it needs a body";
  const std::int64_t carried = node.int_attribute("carried", -1);
  if (carried < 0 || static_cast<std::size_t>(carried) > body->inputs().size())
    return "carried is missing or wrong";
  const std::size_t first = own + static_cast<std::size_t>(carried) + elements;
  if (body->inputs().size() < first || node.inputs().size() > body->inputs().size() ||
      (node.inputs().size() < body->inputs().size() && body->inputs().size() > own))
    return "its inputs do not fit those of the body";
  if (body->outputs().size() < results + (hands_on ? static_cast<std::size_t>(carried) : 0) ||
      node.outputs().size() > body->outputs().size() - results)
    return "its outputs do not fit those of the body";
  for (std::size_t i = own; i < node.inputs().size(); ++i) {
    if (node.input(i) == nullptr) return "input " + std::to_string(i) + " is absent but required";
  }
  return {};
}

}  // namespace

const Graph& body_of(const Node& node, std::string_view name) {
  return *std::get<GraphPtr>(*node.attribute(name));
}

std::string wrong_control_flow(const Node& node) {
  if (node.is("If", kRekindleDomain)) return wrong_if(node);
  if (node.is("Loop", kRekindleDomain)) return wrong_loop(node, 2, 0, 1, true);
  if (node.is("SequenceMap", kRekindleDomain)) {
    if (node.int_attribute("carried", 0) < 1) return "it maps no sequence";
    return wrong_loop(node, 0, 0, 0, false);
  }
  if (!node.is("Scan", kRekindleDomain)) return {};
  const std::int64_t elements = node.int_attribute("num_scan_inputs", 0);
  if (elements < 1 || static_cast<std::size_t>(elements) > node.inputs().size())
    return "num_scan_inputs is wrong";
  return wrong_loop(node, 0, static_cast<std::size_t>(elements), 0, true);
}

}  // namespace rekindle::graph
