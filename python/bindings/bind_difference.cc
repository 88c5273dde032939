// How far two tensors are apart.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "kernels/difference.h"
#include "python/bindings/bindings.h"

namespace rekindle::python {

namespace py = pybind11;

void bind_difference(py::module_& m) {
  m.def(
      "difference",
      [](const at::Tensor& ours, const at::Tensor& theirs) {
        kernels::Difference found;
        {
          const py::gil_scoped_release release;
          found = kernels::difference(ours, theirs);
        }
        py::list octaves;
        for (const auto& [above, count, largest] : found.octaves) {
          octaves.append(py::make_tuple(above, count, largest));
        }
        return py::make_tuple(found.norm, found.scale, found.is_like, octaves);
      },
      py::arg("ours"), py::arg("theirs"),
      "(2-norm of the difference, 2-norm of theirs, whether both have the same non-finite elements, for each "
      "octave of theirs from the smallest (its lower end, or 0 for zeros; how many elements; the largest "
      "difference among them)).");
}

}  // namespace rekindle::python
