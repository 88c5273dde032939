// Calls of a model's own functions, replaced by what they stand for. Internal to the importer.
#pragma once

#include <onnx/onnx-ml.pb.h>

#include <string>

#include "src/base/result.h"

namespace rekindle::graph {

// The domain of ONNX's own operators has two names; this is the empty one.
inline std::string own_domain(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

// Afterwards the model has no functions. kUnsupported for functions that call themselves, for functions of
// another opset of ONNX than the model's, and for models that would grow beyond a million nodes or a
// gigabyte; kCorruption for two of one name.
Status inline_functions(onnx::ModelProto& model);

}  // namespace rekindle::graph
