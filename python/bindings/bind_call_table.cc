// What is known about calls, by their layout. No logic here.
#include "python/bindings/bindings.h"
#include "python/calls/call_table.h"
#include "python/calls/collected.h"

namespace rekindle::python {

namespace py = pybind11;

void bind_call_table(py::module_& m) {
  py::class_<CallTable>(m, "CallTable", py::custom_type_setup(&collected<CallTable>))
      .def(py::init<>())
      .def("find", &CallTable::find, py::arg("args"), py::arg("kwargs"), py::arg("tensors"),
           "What is kept for calls like this one, None if nothing is. Otherwise `tensors` gets its distinct "
           "tensors.")
      .def("take_by_class", &CallTable::take_by_class, py::arg("type"),
           "Lets calls be found with arguments of a class of which nothing else counts.")
      .def("tell_apart", &CallTable::tell_apart, py::arg("containers"),
           "Tells calls with these containers, by their ids, from calls with others like them, from now on.")
      .def("keep", &CallTable::keep, py::arg("args"), py::arg("kwargs"), py::arg("kept"))
      .def("forget", &CallTable::forget, py::arg("kept"));
}

}  // namespace rekindle::python
