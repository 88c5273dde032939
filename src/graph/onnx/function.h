// Calls of a model's own functions, replaced by what they stand for. Internal to the importer.
#pragma once

#include <onnx/onnx-ml.pb.h>

#include "src/base/result.h"

namespace rekindle::graph {

// Afterwards the model has no functions. kUnsupported for functions that call themselves, for functions of
// another opset of ONNX than the model's, and for models that would grow beyond a million nodes or a
// gigabyte; kCorruption for two of one name.
Status inline_functions(onnx::ModelProto& model);

}  // namespace rekindle::graph
