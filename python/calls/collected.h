// Objects of C++ that hold objects of Python, as Python's garbage collector wants to know them.
#pragma once

#include <pybind11/pybind11.h>

namespace rekindle::python {

namespace py = pybind11;

// Lets Python's garbage collector see what objects of a class hold, by their traverse() and clear().
template <typename T>
void collected(PyHeapTypeObject* heap_type) {
  PyTypeObject* const type = &heap_type->ht_type;
  type->tp_flags |= Py_TPFLAGS_HAVE_GC;
  type->tp_traverse = [](PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    return py::detail::is_holder_constructed(self) ? py::handle(self).cast<T&>().traverse(visit, arg) : 0;
  };
  type->tp_clear = [](PyObject* self) {
    if (py::detail::is_holder_constructed(self)) py::handle(self).cast<T&>().clear();
    return 0;
  };
}

}  // namespace rekindle::python
