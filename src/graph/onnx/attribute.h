// AttributeProto <-> Attribute. Internal to the importer and the exporter.
//
// ONNX floats have 32 bits and ours 64. A float that 32 bits cannot hold is exported rounded, and in full in
// the node's metadata, where import finds it; other readers of the model see the rounded one.
#pragma once

#include <onnx/onnx-ml.pb.h>

#include <string>

#include "src/base/result.h"
#include "src/graph/graph.h"

namespace rekindle::graph {

// `what` names the attribute and its node in messages. kUnsupported for subgraphs, sparse tensors and types.
Result<Attribute> attribute_from_onnx(const onnx::AttributeProto& proto, const std::string& what);
// Replaces the rounded floats among `attributes` by the exact ones of the node's metadata; kCorruption when
// the two contradict each other.
Status restore_exact_floats(const onnx::NodeProto& proto, const std::string& what,
                            std::map<std::string, Attribute, std::less<>>& attributes);
// A graph inside a node, without its opsets; defined by the exporter.
void graph_to_onnx(const Graph& graph, onnx::GraphProto& proto);
// Adds the attribute, and its metadata where it needs some, to `node`.
void attribute_to_onnx(const std::string& name, const Attribute& attribute, onnx::NodeProto& node);

}  // namespace rekindle::graph
