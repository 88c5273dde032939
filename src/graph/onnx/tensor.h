// TensorProto <-> ConstantTensor. Internal to the importer and the exporter.
#pragma once

#include <onnx/onnx-ml.pb.h>

#include <string>

#include "src/base/result.h"
#include "src/graph/attribute.h"

namespace rekindle::graph {

// The dtype of an ONNX element type. kUnsupported, naming `what`, for strings, 8-bit and 4-bit floats and the
// like; kCorruption for a number that is no element type. 0 is kUndefined.
Result<DType> dtype_from_onnx(int element_type, const std::string& what);

// The constant that `tensor`, called `what` in messages, holds, in whichever field. kCorruption when the
// number of bytes or elements is not that of its dims; kUnsupported for external and string data.
Result<ConstantPtr> constant_from_onnx(const onnx::TensorProto& tensor, const std::string& what);
void constant_to_onnx(const ConstantTensor& constant, onnx::TensorProto& tensor);

}  // namespace rekindle::graph
