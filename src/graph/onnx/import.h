// ONNX bytes -> Graph. The only reader of ONNX; its input is not trusted.
#pragma once

#include <memory>
#include <string_view>

#include "src/base/result.h"
#include "src/graph/graph.h"

namespace rekindle::graph {

// Opset versions of ONNX's own domain that import_onnx accepts.
inline constexpr std::int64_t kMinOnnxOpset = 1;
inline constexpr std::int64_t kMaxOnnxOpset = 28;
// Nodes of older opsets come out as this one has them (src/graph/onnx/normalize.h).
inline constexpr std::int64_t kNormalOnnxOpset = 20;

// Builds a verified graph from a serialized ModelProto. Initializers become Constant nodes (an input of the
// same name is only their default and disappears); Constant's other value attributes become "value";
// "ai.onnx" becomes ""; value types, symbolic dimensions and node doc strings (as Node::source) are kept.
//
// kCorruption when the bytes are no model or contradict themselves (a tensor of the wrong length, a name
// defined twice or not at all); kUnsupported, naming the node and its op, for what is valid ONNX but not for
// Rekindle: unknown ops and domains, maps, sparse, string and external tensors. Control flow becomes nodes
// that own graphs (src/graph/control_flow.h), calls of the model's own functions what they stand for;
// sequences and optional values have no type.
Result<std::unique_ptr<Graph>> import_onnx(std::string_view bytes);

}  // namespace rekindle::graph
