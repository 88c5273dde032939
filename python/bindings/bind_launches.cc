// Who records launches on a device, and who compiles kernels for it. No logic here.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "python/bindings/bindings.h"
#include "python/calls/kernel_compiler.h"
#include "python/calls/launch_recorder.h"

namespace rekindle::python {

namespace py = pybind11;

void bind_launches(py::module_& m) {
  m.def("set_launch_recorders", &set_launch_recorders, py::arg("type"), py::arg("make"),
        py::arg("runs_before") = 2);
  m.def("set_kernel_compiler", &set_kernel_compiler, py::arg("type"), py::arg("compiler"));
  m.def("use_nvrtc", &use_nvrtc, py::arg("libraries"), py::arg("at_once") = false);
}

}  // namespace rekindle::python
