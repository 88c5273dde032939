// Processes that work beside this one.
#include <malloc.h>
#include <pybind11/pybind11.h>

#include <cerrno>

#include "device/cpu_allocator.h"
#include "python/bindings/bindings.h"
#include "python/process/collectives.h"
#include "python/process/fork.h"

namespace rekindle::python {

namespace py = pybind11;

void bind_process(py::module_& m) {
  m.def(
      "release_free_memory",
      [] {
        const std::size_t released = device::CpuAllocator::release();
        malloc_trim(0);
        return released;
      },
      "Gives memory that was freed back to the system: what is kept for the next step, whose bytes it "
      "returns, "
      "and what the heap keeps.");
  m.def("kept_bytes", &device::CpuAllocator::kept_bytes);
  m.def(
      "fork_helper",
      [](int kept, unsigned seconds) {
        const pid_t child = fork_helper(kept, seconds);
        if (child < 0) {
          PyErr_SetFromErrno(PyExc_OSError);
          throw py::error_already_set();
        }
        return child;
      },
      py::arg("kept"), py::arg("seconds"));
  m.def("answer_collectives", &answer_collectives, py::arg("here"));
}

}  // namespace rekindle::python
