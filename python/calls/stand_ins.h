// What an export has put in the place of functions of torch and Python for its own thread. To the other
// threads, and so to guards, a replacement is what it stands in for. Needs the GIL.
#pragma once

#include <pybind11/pybind11.h>

namespace rekindle::python {

// `value` itself, unless it is a replacement: then what it stands in for, null where there was nothing.
// Borrowed; null stays null.
PyObject* find_original(PyObject* value);
// Sets the (replacement, original) pairs that are in place now; an original is `absent` where there was
// nothing.
void set_stand_ins(const pybind11::list& pairs, const pybind11::object& absent);
inline bool any_stand_ins = false;
inline PyObject* stands_for(PyObject* value) { return any_stand_ins ? find_original(value) : value; }

}  // namespace rekindle::python
