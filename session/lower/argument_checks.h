// What operators of PyTorch take for granted of their arguments, where an error of theirs would end the
// process.
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
