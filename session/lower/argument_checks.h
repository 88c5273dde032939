// argument_check() finds what keeps an operator of PyTorch from reading beyond the tensors that it is given,
// where the operator itself does not look. Internal to the session room.
#pragma once

#include <ATen/core/ivalue.h>

#include <string_view>
#include <vector>

namespace rekindle::session {

// Throws c10::Error for arguments, in the order of the schema, with which the operator reads beyond a tensor.
using ArgumentCheck = void (*)(const std::vector<c10::IValue>& arguments);

// Returns the check of an operator such as "aten.lstm.input"; null for one that checks by itself.
ArgumentCheck argument_check(std::string_view op_type);

}  // namespace rekindle::session
