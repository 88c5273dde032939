#include "src/autodiff/partition.h"

#include <unordered_set>

#include "src/graph/op_info.h"

namespace rekindle::autodiff {
namespace {

using graph::Node;
using graph::Value;

// Adds the nodes that `value` depends on.
void add_ancestors(const Value* value, std::unordered_set<const Node*>& nodes) {
  std::vector<const Node*> open = {value->producer()};
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    if (node == nullptr || !nodes.insert(node).second) continue;
    for (const Value* input : node->inputs()) {
      if (input != nullptr) open.push_back(input->producer());
    }
  }
}

class Partitioner {
 public:
  explicit Partitioner(const JointGraph& joint) : joint_(joint), graph_(*joint.graph) {}

  Partition run() {
    collect();
    for (std::size_t i = joint_.forward_outputs; i < graph_.outputs().size(); ++i) read(graph_.outputs()[i]);
    Partition result;
    for (const auto& node : graph_.nodes()) {
      if (forward_.contains(node.get())) {
        result.forward.push_back(node.get());
        continue;
      }
      if (!backward_.contains(node.get())) continue;
      result.backward.push_back(node.get());
      for (std::size_t i = 0; i < node->inputs().size(); ++i) {
        if (node->input(i) != nullptr && !graph::is_shape_only(*node, i)) read(node->input(i));
      }
    }
    list_saved(result);
    return result;
  }

 private:
  void collect() {
    for (std::size_t i = 0; i < joint_.forward_outputs; ++i) add_ancestors(graph_.outputs()[i], forward_);
    for (const auto& node : graph_.nodes()) {
      // A draw whose result nobody uses still advances the generator.
      if (graph::is_random(*node)) add_ancestors(node->output(), forward_);
    }
    for (std::size_t i = joint_.forward_outputs; i < graph_.outputs().size(); ++i) {
      add_ancestors(graph_.outputs()[i], backward_);
    }
  }

  void read(const Value* value) {
    const Node* producer = value->producer();
    const bool from_forward = producer != nullptr ? forward_.contains(producer) && !producer->is("Constant")
                                                  : value->index() < joint_.forward_inputs;
    if (from_forward) read_.insert(value);
  }

  void list_saved(Partition& result) const {
    for (const Value* input : graph_.inputs()) {
      if (read_.contains(input)) result.saved.push_back(input);
    }
    for (const Node* node : result.forward) {
      for (const Value* output : node->outputs()) {
        if (read_.contains(output)) result.saved.push_back(output);
      }
    }
  }

  const JointGraph& joint_;
  const graph::Graph& graph_;
  std::unordered_set<const Node*> forward_, backward_;  // needed by a forward output or a draw; by a gradient
  std::unordered_set<const Value*> read_;               // forward values whose contents a backward node reads
};

}  // namespace

Partition partition(const JointGraph& joint) { return Partitioner(joint).run(); }

}  // namespace rekindle::autodiff
