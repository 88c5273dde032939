// Between the graph's types and ATen's. Internal to the session room.
#pragma once

#include <ATen/core/Tensor.h>

#include "src/graph/attribute.h"
#include "src/graph/type.h"

namespace rekindle::session {

struct Layout;  // op.h

// Throws c10::Error for kUndefined and kString, which have no tensor.
at::ScalarType scalar_type_of(graph::DType dtype);
// kUndefined for a scalar type that graphs do not have (quantized, float8, ...).
graph::DType dtype_of(at::ScalarType type);

// A tensor without contents: with the layout, on `device`; and a meta tensor like another one.
at::Tensor empty_of(const Layout& layout, at::Device device);
at::Tensor meta_of(const at::Tensor& tensor);
// A new CPU tensor with the constant's contents.
at::Tensor tensor_of(const graph::ConstantTensor& constant);
// The inverse; the tensor is copied to the CPU and made contiguous when it is not.
graph::ConstantPtr constant_of(const at::Tensor& tensor);
bool is_float8(at::ScalarType type);

}  // namespace rekindle::session
