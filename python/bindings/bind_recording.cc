// What an export is told of the interpreter and of torch's tracer. No logic here.
#include <pybind11/stl.h>

#include "python/bindings/bindings.h"
#include "python/recording/audit.h"
#include "python/recording/profile_hook.h"
#include "python/recording/sets.h"
#include "python/recording/tracer.h"

namespace rekindle::python {

namespace py = pybind11;

namespace {

void bind_interpreter(py::module_& m) {
  py::class_<ProfileHook>(m, "ProfileHook")
      .def(py::init<py::object, py::object, py::object, py::object>(), py::arg("on_start"),
           py::arg("on_call"), py::arg("judge"), py::arg("side"))
      .def("start", [](const py::object& self) { self.cast<ProfileHook&>().start(self); })
      .def("stop", &ProfileHook::stop)
      .def("__call__", &ProfileHook::call);
  m.def("set_audit", &set_audit, py::arg("told"));
  m.def("watch_sets", &watch_sets, py::arg("on_order"));
  m.def("unwatch_sets", &unwatch_sets);
  m.def("slots_of_set", &slots_of_set, py::arg("items"));
}

void bind_tracer(py::module_& m) {
  m.def("forget_failed_call", &forget_failed_call);
  m.def("set_library_directories", &set_library_directories, py::arg("directories"));
  m.def("set_checkpoint_code", &set_checkpoint_code, py::arg("code"));
  m.def("user_place", &user_place);
  m.def("record_stacks", &record_stacks, py::arg("wanted"));
}

}  // namespace

void bind_recording(py::module_& m) {
  bind_interpreter(m);
  bind_tracer(m);
}

}  // namespace rekindle::python
