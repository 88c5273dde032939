// Who records launches on a device. No logic here.
#include <pybind11/pybind11.h>

#include "python/bindings/bindings.h"
#include "python/calls/launch_recorder.h"

namespace rekindle::python {

namespace py = pybind11;

void bind_launches(py::module_& m) {
  m.def("set_launch_recorders", &set_launch_recorders, py::arg("type"), py::arg("make"),
        py::arg("runs_before") = 2);
}

}  // namespace rekindle::python
