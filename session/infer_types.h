// infer_types(): what each op's lowering says of its outputs, before there is a plan. Gradient rules receive it as a
// callback, for they need to know ranks.
#pragma once

#include "src/graph/graph.h"

namespace rekindle::session {

// Sets the type of every value that follows from inputs of known, static types. Values that cannot be told (an op without
// a lowering, a symbolic dimension) are left as they are.
void infer_types(graph::Graph& graph);

}  // namespace rekindle::session
