// ONNX bytes -> Graph. The only reader of ONNX; its input is not trusted.
#pragma once

#include <memory>
#include <string_view>

#include "src/base/result.h"
#include "src/graph/graph.h"

namespace rekindle::graph {

// Opset versions of ONNX's own domain that import_onnx accepts: where every known op means what docs/ir.md
// says.
inline constexpr std::int64_t kMinOnnxOpset = 18;
inline constexpr std::int64_t kMaxOnnxOpset = 26;

// Builds a verified graph from a serialized ModelProto. Initializers become Constant nodes (an input of the
// same name is only their default and disappears); Constant's other value attributes become "value";
// "ai.onnx" becomes ""; value types, symbolic dimensions and node doc strings (as Node::source) are kept.
//
// kCorruption when the bytes are no model or contradict themselves (a tensor of the wrong length, a name
// defined twice or not at all); kUnsupported, naming the node and its op, for what is valid ONNX but not for
// Rekindle: unknown ops and domains, functions, control flow, sequences, sparse, string and external tensors.
Result<std::unique_ptr<Graph>> import_onnx(std::string_view bytes);

}  // namespace rekindle::graph
