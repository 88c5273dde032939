// missing_meta() tells the shapes and layouts of an operator's results without data, in the place of
// PyTorch's meta kernel where that refuses what the operator takes, or takes milliseconds, being written in
// Python. Internal to the session room.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string_view>
#include <vector>

namespace rekindle::session {

// Returns meta tensors like an operator's results, none if PyTorch's own kernel is to be asked. Takes the
// arguments in the order of the operator's schema, with meta tensors for tensors. Throws c10::Error for
// arguments that the operator itself does not take.
using MetaKernel = std::vector<at::Tensor> (*)(const std::vector<c10::IValue>& arguments);

// Null if PyTorch's own is to be asked. op_type: "aten.conv2d.default".
MetaKernel missing_meta(std::string_view op_type);

}  // namespace rekindle::session
