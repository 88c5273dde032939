#include "src/autodiff/dead_nodes.h"

#include <algorithm>
#include <unordered_set>

#include "src/graph/op_info.h"

namespace rekindle::autodiff {

void erase_dead_nodes(graph::Graph& graph, const graph::Node* last_kept) {
  const std::unordered_set<const graph::Value*> outputs(graph.outputs().begin(), graph.outputs().end());
  const auto is_dead = [&](const graph::Value* value) {
    return value->uses().empty() && !outputs.contains(value);
  };
  auto position = graph.nodes().end();
  while (position != graph.nodes().begin()) {
    graph::Node* node = std::prev(position)->get();
    if (node == last_kept) return;
    const bool dead = std::ranges::all_of(node->outputs(), is_dead) && !graph::is_random(*node);
    if (dead) {
      graph.erase_node(node);
    } else {
      --position;
    }
  }
}

}  // namespace rekindle::autodiff
