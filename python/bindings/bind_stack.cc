// What lies on the stack of running Python code. Python offers no way to ask, so its layout is read, as of
// the version that this is compiled for.
#include <Python.h>

#include "python/bindings/bindings.h"

#if PY_VERSION_HEX >= 0x030D0000 && PY_VERSION_HEX < 0x030E0000
#define REKINDLE_READS_STACK 1
#define Py_BUILD_CORE 1
extern "C" {
#include <internal/pycore_frame.h>
}
#undef Py_BUILD_CORE
#endif

namespace rekindle::python {

namespace py = pybind11;

void bind_stack(py::module_& m) {
#ifdef REKINDLE_READS_STACK
  m.def(
      "stack_item",
      [](const py::object& frame, int index) {
        if (!PyFrame_Check(frame.ptr())) throw py::type_error("not a frame");
        _PyInterpreterFrame* const running = reinterpret_cast<PyFrameObject*>(frame.ptr())->f_frame;
        const auto* code = reinterpret_cast<PyCodeObject*>(running->f_executable);
        if (index < 0 || index >= code->co_stacksize) throw py::index_error("no such place on the stack");
        return py::reinterpret_borrow<py::object>(running->localsplus[code->co_nlocalsplus + index]);
      },
      py::arg("frame"), py::arg("index"),
      "The value at an index of the stack of a running frame, from the bottom; there must be one. Python "
      "3.13 only.");
#endif
}

}  // namespace rekindle::python
