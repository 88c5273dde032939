// Nodes that own graphs: rekindle::If, Loop, Scan and SequenceMap (docs/ir.md).
//
// A body reads nothing but its inputs: what ONNX lets it take from the graph around it is an input of the
// node and of the body (the closure is explicit), so that passes and the order of nodes need not look inside.
//   If           inputs: condition, then_branch's inputs, else_branch's inputs.
//                Outputs: those of the branch that runs.
//   Loop         inputs: trip count?, condition?, `carried` values, values that every iteration reads.
//                The body's inputs: iteration, condition, carried, read.
//                The body's outputs: condition, carried, scanned. Outputs: last carried, scanned stacked.
//   Scan         inputs: `carried` values, `num_scan_inputs` sequences, values that every iteration reads.
//                The body's inputs: carried, elements, read.
//                The body's outputs: carried, scanned. Outputs: last carried, scanned stacked.
//   SequenceMap  inputs: `carried` sequences (or tensors, which every call reads whole), values that every
//                call reads. The body has the same inputs. Outputs: a sequence of the body's results each.
#pragma once

#include <string>

#include "src/graph/graph.h"

namespace rekindle::graph {

// The attribute `name`, which must be a graph. Precondition, as below: a verified control-flow node.
const Graph& body_of(const Node& node, std::string_view name);
// Empty when the numbers of inputs and outputs of the node and its bodies
// fit (or it owns none), else what is wrong.
std::string wrong_control_flow(const Node& node);

}  // namespace rekindle::graph
