// restrict_cotangents(): leaves out what only absent cotangents feed.
//
// It knows no op: every backward node is linear in the cotangents it reads, so a node all of whose cotangents
// are absent would give zeros, and is left out. Where absent meets present, an accumulation drops the absent
// term and any other node reads zeros.
#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "src/autodiff/gradient.h"
#include "src/autodiff/rule.h"
#include "src/graph/dead_nodes.h"
#include "src/graph/op_info.h"
#include "src/graph/torch_node.h"

namespace rekindle::autodiff {
namespace {

using graph::Graph;

class Restriction {
 public:
  Restriction(JointGraph& joint, const std::vector<bool>& present) : joint_(joint), graph_(*joint.graph) {
    for (std::size_t i = 0; i < present.size(); ++i) {
      Value* cotangent = graph_.inputs()[joint.forward_inputs + i];
      (present[i] ? present_ : absent_).insert(cotangent);
      output_of_[cotangent] = graph_.outputs()[joint.cotangent_of[i]];
    }
  }

  void run(const std::vector<bool>& present) {
    std::vector<Node*> nodes;
    for (const auto& node : graph_.nodes()) nodes.push_back(node.get());
    for (Node* node : nodes) visit(*node);
    erase_absent_gradients();
    graph::erase_dead_nodes(graph_);
    for (std::size_t i = present.size(); i-- > 0;) {
      if (present[i]) continue;
      graph_.erase_input(joint_.forward_inputs + i);
      joint_.cotangent_of.erase(joint_.cotangent_of.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

 private:
  bool is_absent(const Value* value) const { return absent_.contains(value); }
  bool is_present(const Value* value) const { return present_.contains(value); }

  void visit(Node& node) {
    const bool reads_absent = std::ranges::any_of(node.inputs(), [&](Value* v) { return is_absent(v); });
    const bool reads_present = std::ranges::any_of(node.inputs(), [&](Value* v) { return is_present(v); });
    if (!reads_absent && !reads_present) return;
    if (reads_absent && reads_present) {
      if (leave_one_term(node)) return;
      for (std::size_t i = 0; i < node.inputs().size(); ++i) {
        if (!is_absent(node.input(i))) continue;
        // PyTorch's own derivatives know what to leave out.
        node.set_input(i, graph::is_torch_gradient(node) ? nullptr : zeros_of(node.input(i), &node));
      }
    }
    auto& state = reads_present ? present_ : absent_;
    state.insert(node.outputs().begin(), node.outputs().end());
  }

  // Leaves the absent one of a sum's two terms out. Returns whether the node is of no use then: what it makes
  // of its other inputs is absent.
  bool leave_one_term(Node& node) {
    const auto sum = graph::sum_input(node);
    if (!sum || node.input(*sum) == nullptr) return false;
    Value* const base = node.input(*sum);
    const auto is_other_term = [&](Value* value) { return value != base && is_present(value); };
    if (!is_absent(base)) {
      if (std::ranges::any_of(node.inputs(), is_other_term)) return false;
      graph_.replace_all_uses(node.output(), base);
      return true;
    }
    if (node.is("Add")) {
      graph_.replace_all_uses(node.output(), node.input(1 - *sum));
      return true;
    }
    node.set_input(*sum, nullptr);
    return false;
  }

  // What `value` is when the absent cotangents are zero, computed before `before`.
  Value* zeros_of(Value* value, Node* before) {
    if (const auto known = zeros_.find(value); known != zeros_.end()) return known->second;
    if (const auto output = output_of_.find(value); output != output_of_.end()) {
      return zeros_[value] = zeros_like(output->second, before);
    }
    const Node& node = *value->producer();
    const bool takes_shape_of_last =
        node.is("SumToSizeOf", graph::kRekindleDomain) || node.is("ReshapeLike", graph::kRekindleDomain) ||
        node.is("ExpandLike", graph::kRekindleDomain) || node.is("ZerosLike", graph::kRekindleDomain);
    if (takes_shape_of_last && !is_absent(node.inputs().back())) {
      return zeros_[value] = zeros_like(node.inputs().back(), before);
    }
    if (graph::is_torch_gradient(node)) {  // a gradient has the shape of its tracked input
      return zeros_[value] =
                 zeros_like(node.input(graph::gradient_cotangents(node) + 1 + value->index()), before);
    }
    return copy_on_zeros(node, value->index(), before);
  }

  Value* zeros_like(Value* like, Node* before) {
    Node* node = graph_.create_node({.op_type = "ZerosLike",
                                     .domain = std::string(graph::kRekindleDomain),
                                     .inputs = {like},
                                     .attributes = {}},
                                    before);
    node->output()->set_type(like->type());
    return node->output();
  }

  // No shorter way to the shape is known: the node itself, applied to zeros, has it.
  Value* copy_on_zeros(const Node& node, std::size_t output, Node* before) {
    std::vector<Value*> inputs = node.inputs();
    for (Value*& input : inputs) {
      if (is_absent(input)) input = zeros_of(input, before);
    }
    Node* copy = graph_.create_node({.op_type = node.op_type(),
                                     .domain = node.domain(),
                                     .inputs = std::move(inputs),
                                     .attributes = node.attributes(),
                                     .outputs = node.outputs().size()},
                                    before);
    copy->set_origin(node);
    for (std::size_t i = 0; i < node.outputs().size(); ++i) {
      copy->output(i)->set_type(node.output(i)->type());
      zeros_[node.output(i)] = copy->output(i);
    }
    return copy->output(output);
  }

  void erase_absent_gradients() {
    for (std::size_t i = joint_.gradient_of.size(); i-- > 0;) {
      const std::size_t position = joint_.forward_outputs + i;
      if (!is_absent(graph_.outputs()[position])) continue;
      graph_.erase_output(position);
      joint_.gradient_of.erase(joint_.gradient_of.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  JointGraph& joint_;
  Graph& graph_;
  // Values that depend on a cotangent, by what it amounts to.
  std::unordered_set<const Value*> present_, absent_;
  std::unordered_map<const Value*, Value*> output_of_;  // cotangent -> its forward output
  std::unordered_map<const Value*, Value*> zeros_;
};

}  // namespace

Result<JointGraph> restrict_cotangents(const JointGraph& joint, const std::vector<bool>& present) {
  if (present.size() != joint.cotangent_of.size()) {
    return invalid_argument("restrict_cotangents: " + std::to_string(present.size()) + " flags for " +
                            std::to_string(joint.cotangent_of.size()) + " cotangents");
  }
  JointGraph restricted{.graph = joint.graph->clone(),
                        .forward_inputs = joint.forward_inputs,
                        .forward_outputs = joint.forward_outputs,
                        .cotangent_of = joint.cotangent_of,
                        .gradient_of = joint.gradient_of};
  Restriction(restricted, present).run(present);
  return restricted;
}

void restrict_gradients(JointGraph& joint, const std::unordered_set<std::size_t>& inputs) {
  for (std::size_t i = joint.gradient_of.size(); i-- > 0;) {
    if (inputs.contains(joint.gradient_of[i])) continue;
    joint.graph->erase_output(joint.forward_outputs + i);
    joint.gradient_of.erase(joint.gradient_of.begin() + static_cast<std::ptrdiff_t>(i));
  }
  graph::erase_dead_nodes(*joint.graph);
}

}  // namespace rekindle::autodiff
