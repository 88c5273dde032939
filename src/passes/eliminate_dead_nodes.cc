// Removes nodes that no output needs. Random nodes stay: what comes after them must draw the same numbers.
#include <algorithm>
#include <unordered_set>

#include "src/graph/op_info.h"
#include "src/passes/pass.h"

namespace rekindle::passes {
namespace {

Result<bool> run(graph::Graph& graph, const PassContext&) {
  const std::unordered_set<const graph::Value*> outputs(graph.outputs().begin(), graph.outputs().end());
  const auto is_needed = [&](const graph::Value* value) {
    return !value->uses().empty() || outputs.contains(value);
  };
  const std::size_t before = graph.nodes().size();
  // Backwards, so that a node is seen after everything that uses it.
  for (auto position = graph.nodes().end(); position != graph.nodes().begin();) {
    graph::Node* node = std::prev(position)->get();
    if (std::ranges::any_of(node->outputs(), is_needed) || graph::is_random(*node)) {
      --position;
    } else {
      graph.erase_node(node);
    }
  }
  return graph.nodes().size() != before;
}

REKINDLE_PASS("eliminate_dead_nodes", "Removes nodes whose results nobody uses", run);

}  // namespace
}  // namespace rekindle::passes
