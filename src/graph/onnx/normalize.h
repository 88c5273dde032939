// One ONNX node, whatever the opset of its model, in the form of opset 20. Internal to the importer.
#pragma once

#include <string>

#include "src/base/result.h"
#include "src/graph/graph.h"

namespace rekindle::graph {

// Rewrites `spec`, a node of ONNX's own domain in a model of `opset`, and adds the nodes it needs before it
// to `graph`. kUnsupported for forms that opset 20 cannot say. `what` names the node in messages.
Status normalize_node(Graph& graph, NodeSpec& spec, std::int64_t opset, const std::string& what);

}  // namespace rekindle::graph
