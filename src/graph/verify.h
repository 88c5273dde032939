// The invariants every graph keeps, checked after import, after each pass and before a graph is stored.
#pragma once

#include "src/base/result.h"
#include "src/graph/graph.h"

namespace rekindle::graph {

// kInternal, naming the node and the value, for the first invariant that does not hold: names are unique and
// found; each value is defined before its use and by its producer; uses() lists exactly the uses; outputs are
// defined; every op is known, with an allowed number of inputs and outputs and with the absent inputs it may
// have; a domain in use has an opset; constants are well formed; a Constant node has its value; attributes
// have the types its ops read.
Status verify(const Graph& graph);

}  // namespace rekindle::graph
