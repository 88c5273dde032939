// Being told of iterations over sets: the order of the items is that of their hashes, which differ from
// process to process.
#include <Python.h>
#include <pythread.h>

#include <utility>

#include "python/bindings/bindings.h"

namespace rekindle::python {

namespace py = pybind11;

namespace {

// No event and no subclass shows an iteration that `for`, `list` or `join` begins: the slot of the type does.
// Guarded by the GIL.
struct Watch {
  getiterfunc of_set = nullptr, of_frozenset = nullptr;  // Python's own
  py::object on_iteration;                               // null while nobody is told
  unsigned long thread = 0;
  bool telling = false;
};

Watch& watch() {
  static Watch* const only = new Watch;  // never destroyed: it holds a Python object
  return *only;
}

PyObject* tell_and_iterate(PyObject* set, getiterfunc own) {
  Watch& watched = watch();
  if (!watched.telling && PySet_GET_SIZE(set) > 1 && PyThread_get_thread_ident() == watched.thread) {
    watched.telling = true;
    PyObject* const result = PyObject_CallOneArg(watched.on_iteration.ptr(), set);
    watched.telling = false;
    if (result == nullptr) return nullptr;
    Py_DECREF(result);
  }
  return own(set);
}

PyObject* iterate_set(PyObject* set) { return tell_and_iterate(set, watch().of_set); }
PyObject* iterate_frozenset(PyObject* set) { return tell_and_iterate(set, watch().of_frozenset); }

void stop() {
  Watch& watched = watch();
  if (!watched.on_iteration) return;
  PySet_Type.tp_iter = watched.of_set;
  PyFrozenSet_Type.tp_iter = watched.of_frozenset;
  watched.on_iteration = py::object();
}

void start(py::object on_iteration) {
  stop();
  Watch& watched = watch();
  watched.of_set = std::exchange(PySet_Type.tp_iter, &iterate_set);
  watched.of_frozenset = std::exchange(PyFrozenSet_Type.tp_iter, &iterate_frozenset);
  watched.thread = PyThread_get_thread_ident();
  watched.on_iteration = std::move(on_iteration);
}

}  // namespace

void bind_sets(py::module_& m) {
  m.def("watch_sets", &start,
        "Call `on_iteration(set)` whenever this thread begins to iterate over a set or frozenset of several "
        "items, until unwatch_sets. Those of subclasses made before, and loops inside C that use no "
        "iterator, are not seen.");
  m.def("unwatch_sets", &stop);
}

}  // namespace rekindle::python
