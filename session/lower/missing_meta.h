// What operators of PyTorch return whose meta kernels refuse what their kernels take, or take milliseconds,
// as those that are decompositions in Python. Internal to the session room.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string_view>
#include <vector>

namespace rekindle::session {

// Of an operator's arguments in the order of its schema, with meta tensors, the meta tensors that it returns;
// none if PyTorch's own is to be asked. Throws c10::Error for arguments that the operator itself does not
// take.
using MetaKernel = std::vector<at::Tensor> (*)(const std::vector<c10::IValue>& arguments);

// Null if PyTorch's own is to be asked. op_type: "aten.conv2d.default".
MetaKernel missing_meta(std::string_view op_type);

}  // namespace rekindle::session
