// JSON of a contract as Python's plain values, and back; see src/contract/json.h for what stands for values
// that JSON does not have.
#pragma once

#include <pybind11/pybind11.h>

#include "src/contract/json.h"

namespace rekindle::python {

// None, bool, int, float, str, and lists and dicts of these. Throws Python's error for a text that is none.
pybind11::object as_python(const contract::Json& json);

// Lists and tuples become arrays, dicts with str as keys objects. RekindleException (kInvalidArgument) for a
// value of another kind, and for containers that are too deep in one another.
contract::Json as_json(pybind11::handle value);

}  // namespace rekindle::python
