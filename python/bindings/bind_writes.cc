// What a graph writes of the caller's, and who else sees it. No logic here.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "device/copies.h"
#include "python/bindings/bindings.h"
#include "python/bindings/saved_tensors.h"
#include "python/calls/collected.h"
#include "python/calls/state_writes.h"
#include "python/calls/written_memory.h"
#include "session/autograd/own_writes.h"

namespace rekindle::python {

namespace py = pybind11;

void bind_writes(py::module_& m) {
  py::class_<StateWrites>(m, "StateWrites")
      .def(py::init([](Positions positions, Positions silent, SavedTensors saved) {
             return StateWrites{std::move(positions), std::move(silent),
                                std::make_shared<const std::vector<session::SavedTensor>>(
                                    saved_tensors_of(std::move(saved)))};
           }),
           py::arg("positions") = Positions{}, py::arg("silent") = Positions{},
           py::arg("saved") = SavedTensors{})
      .def("write", &write_outputs, py::arg("written"), py::arg("before"), py::arg("outputs"));
  py::class_<WrittenMemory>(m, "WrittenMemory", py::custom_type_setup(&collected<WrittenMemory>))
      .def(py::init<const py::list&, const py::list&, std::vector<std::ptrdiff_t>, bool, py::object>(),
           py::arg("state"), py::arg("contents"), py::arg("writes"), py::arg("saves"), py::arg("bytes_of"))
      .def("shared", &WrittenMemory::shared, py::arg("arguments"));
  m.def("copies_of", &device::copies_of, py::arg("tensors"));
  m.def("write_back", &write_back, py::arg("written"), py::arg("before"));
  m.def(
      "note_own_writes",
      [](const std::vector<std::pair<at::Tensor, std::uint32_t>>& versions) {
        session::note_own_writes(versions);
      },
      py::arg("versions"));
}

}  // namespace rekindle::python
