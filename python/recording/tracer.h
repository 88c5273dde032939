// What an export asks of torch's tracer that Python cannot.
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <vector>

namespace rekindle::python {

// Takes out of the graph a call that failed while torch traced it, and forgets its arguments; the next call
// would be given them.
void forget_failed_call();

// Where the code of torch and of this package lies, each with a separator at its end.
void set_library_directories(std::vector<std::string> directories);

// The code object whose frames are activation checkpoints of the user's.
void set_checkpoint_code(pybind11::object code);

// "model.py:12 in forward": the innermost frame of this thread outside of the library directories. Empty
// without one.
std::string user_place();

// Whether nodes that this thread traces remember the whole Python stack, which takes most of the time in a
// deep model, or only the user's place in it. Returns what held before.
bool record_stacks(bool wanted);

}  // namespace rekindle::python
