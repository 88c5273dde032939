#include "src/autodiff/rematerialize.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "src/autodiff/partition.h"
#include "src/graph/op_info.h"

namespace rekindle::autodiff {
namespace {

using graph::Node;
using graph::Value;

bool is_cheap(const Node& node) {
  const graph::OpInfo* info = graph::find_op(node.domain(), node.op_type());
  return info != nullptr && info->is(graph::kCheap);
}

class Rematerializer {
 public:
  explicit Rematerializer(JointGraph& joint) : graph_(*joint.graph) {
    const Partition parts = partition(joint);
    for (const Value* output : graph_.outputs()) exposed_.insert(graph::base_of(output));
    saved_.insert(parts.saved.begin(), parts.saved.end());
    for (const Value* value : parts.saved) {
      if (can_recompute(value)) chosen_.insert(value);
    }
    const std::unordered_set<const Node*> backward(parts.backward.begin(), parts.backward.end());
    for (const auto& node : graph_.nodes()) {
      if (backward.contains(node.get())) backward_.push_back(node.get());
    }
  }

  void run() {
    for (Node* node : backward_) {
      for (std::size_t i = 0; i < node->inputs().size(); ++i) {
        if (!chosen_.contains(node->input(i)) || graph::is_shape_only(*node, i)) continue;
        node->set_input(i, again(node->input(i), node));
      }
    }
  }

 private:
  bool can_recompute(const Value* value) const {
    const Node* node = value->producer();
    if (node == nullptr || value->index() != 0 || !is_private(value)) return false;
    const bool dropout = is_training_dropout(*node);
    if (!dropout && !is_cheap(*node)) return false;
    if (dropout && !(node->outputs().size() > 1 && is_there(node->output(1)))) return false;
    return std::ranges::all_of(node->inputs(),
                               [&](const Value* input) { return input == nullptr || is_there(input); });
  }

  // One whose ratio is given, so that DropoutGradient can do what it does.
  static bool is_training_dropout(const Node& node) {
    return node.is("Dropout") && graph::is_random(node) && node.input(1) != nullptr;
  }

  // Whether the backward pass has the value anyway, as nobody can have changed it.
  bool is_there(const Value* value) const {
    return graph::constant_of(value) != nullptr || (saved_.contains(value) && is_private(value));
  }

  // In memory that neither the caller nor, as an output, the user has.
  bool is_private(const Value* value) const {
    const Value* base = graph::base_of(value);
    return base->producer() != nullptr && !exposed_.contains(base);
  }

  // The recomputed value, made before `user` if nothing has asked for it yet.
  Value* again(const Value* value, Node* user) {
    if (const auto known = again_.find(value); known != again_.end()) return known->second;
    const Node& node = *value->producer();
    graph::NodeSpec spec{node.op_type(), node.domain(), node.inputs(), node.attributes(), 1};
    if (node.is("Dropout")) {  // the draw was made: the mask is applied, as it is to a gradient
      spec = {"DropoutGradient",
              std::string(graph::kRekindleDomain),
              {node.input(0), node.output(1), node.input(1)},
              {},
              1};
    }
    for (Value*& input : spec.inputs) {
      if (chosen_.contains(input)) input = again(input, user);
    }
    spec.attributes[std::string(kRecomputes)] = value->name();
    Node* copy = graph_.create_node(std::move(spec), user);
    copy->set_origin(node);
    copy->output()->set_type(value->type());
    return again_[value] = copy->output();
  }

  graph::Graph& graph_;
  std::unordered_set<const Value*> exposed_, saved_, chosen_;  // exposed: the user has their memory
  std::vector<Node*> backward_;
  std::unordered_map<const Value*, Value*> again_;
};

}  // namespace

const Value* recomputed_value(const graph::Graph& graph, const Node& node) {
  const std::string name = node.string_attribute(kRecomputes, "");
  return name.empty() ? nullptr : graph.find_value(name);
}

void rematerialize(JointGraph& joint) { Rematerializer(joint).run(); }

}  // namespace rekindle::autodiff
