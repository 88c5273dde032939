#include "src/autodiff/gradient.h"

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "src/autodiff/rule.h"
#include "src/graph/dead_nodes.h"
#include "src/graph/op_info.h"
#include "src/graph/text/print.h"
#include "src/graph/torch_node.h"

namespace rekindle::autodiff {
namespace {

using graph::DType;
using graph::Graph;

// The opset that rules are written for (docs/ir.md).
constexpr std::int64_t kOnnxOpset = 20;

// Values of unknown dtype are taken for differentiable: at worst the walk emits nodes that nobody uses.
bool may_have_gradient(const Value* value) {
  DType dtype = value->type().dtype;
  if (dtype == DType::kUndefined && value->producer() != nullptr && value->producer()->is("Cast")) {
    dtype = static_cast<DType>(value->producer()->int_attribute("to", 0));
  }
  if (dtype != DType::kUndefined && !graph::is_differentiable(dtype)) return false;
  const Node* node = value->producer();
  return node == nullptr || !graph::is_torch(*node) || graph::is_differentiable_result(*node, value->index());
}

// True when the outputs of `node` are constant as far as gradients go. A missing rule is not that.
bool stops_gradient(const Node& node) {
  const Rule* rule = find_rule(node);
  return rule != nullptr && *rule == nullptr;
}

class ReverseWalk {
 public:
  ReverseWalk(JointGraph& joint, const std::vector<bool>& needs_gradient)
      : joint_(joint), graph_(*joint.graph), inputs_(graph_.inputs()) {
    for (std::size_t i = 0; i < needs_gradient.size(); ++i) {
      if (needs_gradient[i]) active_.insert(inputs_[i]);
    }
  }

  Status run() {
    std::vector<Node*> forward;
    for (const auto& node : graph_.nodes()) forward.push_back(node.get());
    for (const Node* node : forward) mark_active(*node);
    const std::vector<Value*> cotangents = add_cotangents();
    if (!cotangents.empty()) add_opsets();
    for (auto node = forward.rbegin(); node != forward.rend(); ++node)
      REKINDLE_RETURN_IF_ERROR(visit(**node));
    add_gradients();
    graph::erase_dead_nodes(graph_, forward.empty() ? nullptr : forward.back());
    drop_unused(cotangents);
    return {};
  }

 private:
  // Active values depend on an input whose gradient is wanted.
  void mark_active(const Node& node) {
    if (stops_gradient(node)) return;
    bool depends = false;
    for (std::size_t i = 0; i < node.inputs().size(); ++i) {
      depends |= active_.contains(node.input(i)) && !graph::is_shape_only(node, i);
    }
    for (const Value* output : node.outputs()) {
      if (depends && may_have_gradient(output)) active_.insert(output);
    }
  }

  std::vector<Value*> add_cotangents() {
    std::vector<Value*> cotangents;
    for (std::size_t i = 0; i < joint_.forward_outputs; ++i) {
      Value* output = graph_.outputs()[i];
      if (!active_.contains(output)) continue;
      Value* cotangent = graph_.add_input("d_" + output->name(), output->type());
      named_.insert(cotangent);
      cotangents.push_back(cotangent);
      joint_.cotangent_of.push_back(i);
      accumulate(output, cotangent, nullptr);
    }
    return cotangents;
  }

  // Rules emit ops of both domains, whatever the forward graph uses.
  void add_opsets() {
    if (!graph_.opsets().contains("")) graph_.set_opset("", kOnnxOpset);
    if (!graph_.opsets().contains(graph::kRekindleDomain)) {
      graph_.set_opset(std::string(graph::kRekindleDomain), graph::kRekindleOpset);
    }
  }

  Status visit(Node& node) {
    std::vector<Value*> dy;
    bool reached = false;
    for (const Value* output : node.outputs()) {
      dy.push_back(finished_cotangent(output));
      reached |= dy.back() != nullptr;
    }
    if (!reached) return {};
    std::vector<bool> needs;
    for (std::size_t i = 0; i < node.inputs().size(); ++i) {
      needs.push_back(active_.contains(node.input(i)) && !graph::is_shape_only(node, i));
    }
    const Rule* rule = find_rule(node);
    if (rule == nullptr) {
      return unsupported("there is no gradient rule for " + graph::describe(node) +
                         "; add one in src/autodiff/rules, or detach its inputs in the model");
    }
    RuleContext context(graph_, node, std::move(dy), std::move(needs));
    REKINDLE_RETURN_IF_ERROR((*rule)(context));
    for (std::size_t i = 0; i < context.dx().size(); ++i) {
      if (context.needs(i) && context.dx()[i].value != nullptr) REKINDLE_RETURN_IF_ERROR(deliver(context, i));
    }
    return {};
  }

  // The cotangent of an output, complete because all users have been visited; null when nobody gave one.
  Value* finished_cotangent(const Value* output) {
    const auto found = cotangents_.find(output);
    if (found == cotangents_.end()) return nullptr;
    name_after(output, found->second);
    return found->second;
  }

  // Sums what the rule set for input i to the shape of the input, and adds it to the input's cotangent.
  Status deliver(RuleContext& context, std::size_t i) {
    Value* x = context.x(i);
    const auto& [value, unreduced] = context.dx()[i];
    const bool reduce = unreduced && !graph::have_same_shape(*unreduced, x->type());
    Value* dx = reduce ? context.rekindle_op("SumToSizeOf", {value, x}) : value;
    const DType want = x->type().dtype, have = dx->type().dtype;
    if (want != DType::kUndefined && have != DType::kUndefined && want != have) {
      return internal_error("the gradient rule of " + graph::describe(context.node()) + " gives " +
                            graph::dtype_name(have) + " for input " + std::to_string(i) + ", which is " +
                            graph::dtype_name(want));
    }
    accumulate(x, dx, &context);
    return {};
  }

  // `context` is null only for the first cotangents, which come before all rules.
  void accumulate(const Value* x, Value* dx, RuleContext* context) {
    if (dx->type() == TensorType{}) dx->set_type(x->type());
    Value*& sum = cotangents_[x];
    if (sum == nullptr) {
      sum = dx;
      return;
    }
    // The mark tells restrict_cotangents that a missing term may simply be left out.
    Attributes mark = {{"accumulate", 1}};
    if (context != nullptr) {
      sum = context->op("Add", {sum, dx}, std::move(mark));
    } else {
      sum = graph_
                .create_node(
                    {.op_type = "Add", .domain = "", .inputs = {sum, dx}, .attributes = std::move(mark)})
                ->output();
    }
    sum->set_type(x->type());
  }

  void add_gradients() {
    for (std::size_t i = 0; i < joint_.forward_inputs; ++i) {
      Value* gradient = active_.contains(inputs_[i]) ? finished_cotangent(inputs_[i]) : nullptr;
      if (gradient == nullptr) continue;
      graph_.add_output(gradient);
      joint_.gradient_of.push_back(i);
    }
  }

  // A cotangent that no gradient reads was asked for in vain: its output
  // only seemed to depend on a wanted input.
  void drop_unused(const std::vector<Value*>& cotangents) {
    for (std::size_t i = cotangents.size(); i-- > 0;) {
      if (!cotangents[i]->uses().empty() || graph_.is_output(cotangents[i])) continue;
      graph_.erase_input(joint_.forward_inputs + i);
      joint_.cotangent_of.erase(joint_.cotangent_of.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  // Several values can share a cotangent (both terms of a sum): the first name stays.
  void name_after(const Value* value, Value* cotangent) {
    if (named_.insert(cotangent).second) graph_.rename(cotangent, "d_" + value->name());
  }

  JointGraph& joint_;
  Graph& graph_;
  const std::vector<Value*> inputs_;  // of the forward graph
  std::unordered_set<const Value*> active_;
  std::unordered_map<const Value*, Value*> cotangents_;  // forward value -> sum of its cotangents so far
  std::unordered_set<const Value*> named_;
};

}  // namespace

Result<JointGraph> differentiate(const Graph& forward, const std::vector<bool>& needs_gradient) {
  if (needs_gradient.size() != forward.inputs().size()) {
    return invalid_argument("differentiate: needs_gradient has " + std::to_string(needs_gradient.size()) +
                            " entries, the graph has " + std::to_string(forward.inputs().size()) + " inputs");
  }
  for (std::size_t i = 0; i < needs_gradient.size(); ++i) {
    const Value* input = forward.inputs()[i];
    if (needs_gradient[i] && !may_have_gradient(input)) {
      return invalid_argument("differentiate: input %" + input->name() + " is " +
                              graph::dtype_name(input->type().dtype) + ", which has no gradient");
    }
  }
  JointGraph joint{.graph = forward.clone(),
                   .forward_inputs = forward.inputs().size(),
                   .forward_outputs = forward.outputs().size(),
                   .cotangent_of = {},
                   .gradient_of = {}};
  REKINDLE_RETURN_IF_ERROR(ReverseWalk(joint, needs_gradient).run());
  return joint;
}

}  // namespace rekindle::autodiff
