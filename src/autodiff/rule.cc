#include "src/autodiff/rule.h"

#include <utility>

#include "src/graph/text/print.h"
#include "src/graph/torch_node.h"

namespace rekindle::autodiff {

RuleContext::RuleContext(graph::Graph& graph, Node& node, std::vector<Value*> dy, std::vector<bool> needs)
    : graph_(graph), node_(node), dy_(std::move(dy)), needs_(std::move(needs)), dx_(node.inputs().size()) {}

Value* RuleContext::y(std::size_t i) {
  while (node_.outputs().size() <= i) {
    const std::string name = node_.output()->name() + "_" + std::to_string(node_.outputs().size());
    graph_.rename(graph_.add_node_output(&node_), name);
  }
  return node_.output(i);
}

Value* RuleContext::dy_or_zeros(std::size_t i) {
  return dy(i) != nullptr ? dy(i) : rekindle_op("ZerosLike", {y(i)});
}

Node* RuleContext::emit(std::string_view domain, std::string_view op_type, std::vector<Value*> inputs,
                        Attributes attributes, std::size_t outputs) {
  Node* node = graph_.create_node({.op_type = std::string(op_type),
                                   .domain = std::string(domain),
                                   .inputs = std::move(inputs),
                                   .attributes = std::move(attributes),
                                   .outputs = outputs});
  node->set_source(node_.source());
  return node;
}

Value* RuleContext::op(std::string_view op_type, std::vector<Value*> inputs, Attributes attributes) {
  return emit("", op_type, std::move(inputs), std::move(attributes), 1)->output();
}

Value* RuleContext::rekindle_op(std::string_view op_type, std::vector<Value*> inputs, Attributes attributes) {
  return emit(graph::kRekindleDomain, op_type, std::move(inputs), std::move(attributes), 1)->output();
}

std::vector<Value*> RuleContext::rekindle_op(std::string_view op_type, std::vector<Value*> inputs,
                                             Attributes attributes, std::size_t outputs) {
  return emit(graph::kRekindleDomain, op_type, std::move(inputs), std::move(attributes), outputs)->outputs();
}

Value* RuleContext::scalar(double value, Value* like) {
  const graph::DType dtype = like->type().dtype;
  if (dtype != graph::DType::kUndefined)
    return graph_.create_constant(graph::make_scalar_constant(dtype, value));
  Value* wide = graph_.create_constant(graph::make_scalar_constant(graph::DType::kFloat64, value));
  return op("CastLike", {wide, like});
}

Value* RuleContext::int64s(const std::vector<std::int64_t>& values) {
  return graph_.create_constant(
      graph::make_int64_constant(values, {static_cast<std::int64_t>(values.size())}));
}

void RuleContext::set_dx(std::size_t i, Value* dx) { dx_[i] = {dx, std::nullopt}; }

void RuleContext::set_unreduced_dx(std::size_t i, Value* dx) {
  set_unreduced_dx(i, dx, node_.output()->type());
}

void RuleContext::set_unreduced_dx(std::size_t i, Value* dx, TensorType type) {
  dx_[i] = {dx, std::move(type)};
}

Error RuleContext::unsupported(std::string_view reason) const {
  return rekindle::unsupported("the gradient of " + graph::describe(node_) +
                               " is not supported: " + std::string(reason));
}

Registry<Rule>& rules() {
  // Made on first use: registrars of other files run before main() in any order.
  static Registry<Rule> registry;
  return registry;
}

const Rule* find_rule(const Node& node) {
  const Rule* own = rules().find(graph::qualified_name(node.domain(), node.op_type()));
  return own == nullptr && graph::is_torch(node) ? rules().find(graph::qualified_name(node.domain(), ""))
                                                 : own;
}

std::optional<std::size_t> rank_of(const Value* value) {
  if (!value->type().dims) return std::nullopt;
  return value->type().dims->size();
}

}  // namespace rekindle::autodiff
