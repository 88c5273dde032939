// watch_sets(): tells an export of sets whose items are taken one after another: their order is that of their
// hashes, which differs from process to process.
#pragma once

#include <pybind11/pybind11.h>

namespace rekindle::python {

// Calls `on_order(set)` whenever this thread takes the items of a set or frozenset of several items one after
// another and what it makes of them may depend on their order, until unwatch_sets(). Not seen is what other C
// functions, as pickle's, do without an iterator, and from Python 3.13 on `[*items]`.
// Throws std::runtime_error where others stand in the place of Python's own functions.
void watch_sets(pybind11::object on_order);
void unwatch_sets();

// The number of slots in the table of a set or frozenset, where each item lies at its hash modulo this number
// unless another has it; 0 if items that were removed may have moved others.
Py_ssize_t slots_of_set(const pybind11::object& items);

}  // namespace rekindle::python
