// Reads the values of an operator's arguments: from attributes of its node (src/graph/torch_node.h), and from
// tensors. Internal to the session room.
//
// Each function throws c10::Error, or c10::NotImplementedError, for a value that the argument cannot have.
// The message continues the argument's name, which the caller puts before it: "is not an int".
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <cstddef>

#include "src/graph/graph.h"

namespace rekindle::session {

// The value that an attribute has as an argument of this type of a schema.
c10::IValue argument_value(const graph::Attribute& attribute, const c10::Type& type);

// The number of tensors that an attribute says a list has.
std::size_t list_length(const graph::Attribute& attribute);

// Tells whether a graph can compute an argument of this type: an integer, a number or a list of integers.
bool takes_numbers(const c10::Type& type);

// The value that integer[n] `tensor`, or its only element, has as an argument of this type.
c10::IValue computed_argument(const at::Tensor& tensor, const c10::Type& type);

}  // namespace rekindle::session
