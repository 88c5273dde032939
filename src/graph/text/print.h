// The text form of docs/ir.md, written. parse.h reads it back.
#pragma once

#include <string>

#include "src/graph/graph.h"

namespace rekindle::graph {

// The whole graph, ending in a newline. Exact: parse(print(g)) prints the same, numbers to the last bit. Node
// sources are left out. The type of a Constant's output is left out where it is the constant's own.
std::string print(const Graph& graph);
// One node's line without indentation or newline: "%y: float32[2] = Relu(%x)".
std::string print(const Node& node);
// "float32[batch, 4]"; "undefined" for a type of which nothing is known.
std::string print(const TensorType& type);
// "int64[2]{1, 0}".
std::string print(const ConstantTensor& constant);
// "MatMul (%y, from model.py:12)" for messages: the op, its first output and its source, where it has them.
std::string describe(const Node& node);

}  // namespace rekindle::graph
