// Removal of backward nodes that turned out to be unused; shared by
// differentiate() and restrict_cotangents().
#pragma once

#include "src/graph/graph.h"

namespace rekindle::autodiff {

// Erases, from the last node backwards, every node whose outputs nobody uses, except random ones. Stops at
// `last_kept` (which stays) when it is given.
void erase_dead_nodes(graph::Graph& graph, const graph::Node* last_kept);

}  // namespace rekindle::autodiff
