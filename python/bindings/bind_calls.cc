// What a call asks before it runs, and what it restores after. No logic here.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <unordered_set>

#include "device/arena_pool.h"
#include "device/random_state.h"
#include "python/bindings/bindings.h"
#include "python/calls/ambient.h"
#include "python/calls/collected.h"
#include "python/calls/guard.h"
#include "session/padding/padding_elimination.h"

namespace rekindle::python {

namespace py = pybind11;

namespace {

void bind_guard(py::module_& m) {
  py::class_<Guard>(m, "Guard", py::custom_type_setup(&collected<Guard>))
      .def(py::init<const py::list&, const py::list&, const py::list&, const py::list&,
                    std::unordered_set<std::uintptr_t>>(),
           py::arg("containers"), py::arg("tensors"), py::arg("items") = py::list(),
           py::arg("cells") = py::list(), py::arg("weak") = py::set())
      .def("check", &Guard::check);
}

}  // namespace

void bind_calls(py::module_& m) {
  bind_guard(m);
  py::class_<session::AllRows>(m, "AllRows")
      .def(py::init<>())
      .def("__enter__", [](const session::AllRows&) { session::AllRows::enter(); })
      .def("__exit__", [](const session::AllRows&, const py::args&) { session::AllRows::leave(); });
  m.def("ambient_fields", &ambient_fields);
  m.def("ambient_state", &ambient_state);
  m.def("set_ambient_state", &set_ambient_state);
  m.def("release_idle_arenas", &device::ArenaPool::release_all);
  m.def("random_states", &device::random_states);
  m.def("set_random_states", &device::set_random_states);
  m.def("seed_random_states", &device::seed_random_states);
}

}  // namespace rekindle::python
