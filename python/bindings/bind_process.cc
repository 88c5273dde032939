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
  // Gives memory that was freed back to the system: what is kept for the next step, and what the heap keeps.
  m.def("release_free_memory", [] {
    device::CpuAllocator::release();
    malloc_trim(0);
  });
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
