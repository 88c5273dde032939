// Controls torch's tracer for an export, where Python has no way to: what it forgets, and which places it
// records.
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <vector>

namespace rekindle::python {

// Takes out of the graph a call that failed while torch traced it, and forgets its arguments; the next call
// would be given them.
void forget_failed_call();

// Says where the code of torch and of this package lies, each with a separator at its end. Set before a
// trace.
void set_library_directories(std::vector<std::string> directories);

// Says which code object's frames are activation checkpoints of the user's. Set before a trace.
void set_checkpoint_code(pybind11::object code);

// Returns the innermost frame of this thread outside of the library directories, as "model.py:12 in forward".
// Empty without one.
std::string user_place();

// Makes nodes that this thread traces remember the whole Python stack (true), which takes most of the time in
// a deep model, or the user's place in it alone (false). Returns what it was before.
bool record_stacks(bool wanted);

}  // namespace rekindle::python
