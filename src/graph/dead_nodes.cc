#include "src/graph/dead_nodes.h"

#include <algorithm>
#include <unordered_set>

#include "src/graph/op_info.h"

namespace rekindle::graph {

bool erase_dead_nodes(Graph& graph, const Node* last_kept) {
  const std::unordered_set<const Value*> outputs(graph.outputs().begin(), graph.outputs().end());
  const auto is_needed = [&](const Value* value) {
    return !value->uses().empty() || outputs.contains(value);
  };
  const std::size_t before = graph.nodes().size();
  // Backwards, so that a node is seen after everything that uses it.
  for (auto position = graph.nodes().end(); position != graph.nodes().begin();) {
    Node* const node = std::prev(position)->get();
    if (node == last_kept) break;
    if (std::ranges::any_of(node->outputs(), is_needed) || is_random(*node)) {
      --position;
    } else {
      graph.erase_node(node);
    }
  }
  return graph.nodes().size() != before;
}

}  // namespace rekindle::graph
