// Graph -> ONNX bytes: what the cache stores and what other tools open.
#pragma once

#include <string>

#include "src/base/result.h"
#include "src/graph/graph.h"

namespace rekindle::graph {

// A serialized ModelProto; import_onnx reads it back to a graph that prints the same, sources included. The
// same graph always gives the same bytes. kUnsupported when it would exceed protobuf's limit of 2 GiB.
Result<std::string> export_onnx(const Graph& graph);

}  // namespace rekindle::graph
