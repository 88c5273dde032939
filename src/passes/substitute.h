// Replacing one value by an equal one, which most passes do, without touching the graph's interface.
#pragma once

#include "src/graph/graph.h"

namespace rekindle::passes {

// Makes `to`, known to equal `from` and defined before each use of it, take
// its place; true when something changed.
//
// Node inputs always change over. A graph output does when `to` is neither a graph input nor an output
// itself: it then takes over the name. Otherwise `from` stays as that output. What is known of the type of
// `from` is added to `to`.
bool substitute(graph::Graph& graph, graph::Value* from, graph::Value* to);

}  // namespace rekindle::passes
