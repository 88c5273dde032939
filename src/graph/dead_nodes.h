// Removal of nodes that nobody needs.
#pragma once

#include "src/graph/graph.h"

namespace rekindle::graph {

// Erases, from the last node backwards, every node whose outputs nobody uses, and returns whether there was
// any. Random ones stay: what comes after them must draw the same numbers. Stops at `last_kept` (which stays)
// when it is given.
bool erase_dead_nodes(Graph& graph, const Node* last_kept = nullptr);

}  // namespace rekindle::graph
