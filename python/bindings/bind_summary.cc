// Binds kernels/summary.h: counts, extremes, moments and a histogram of a tensor.
#include <ATen/core/Tensor.h>
#include <torch/csrc/utils/pybind.h>

#include "kernels/summary.h"
#include "python/bindings/bindings.h"

namespace rekindle::python {

namespace py = pybind11;

namespace {

kernels::Summary summary_of(const at::Tensor& x) {
  const py::gil_scoped_release release;
  return kernels::summary(x);
}

py::tuple numbers_of(const at::Tensor& x) {
  const kernels::Summary found = summary_of(x);
  py::list powers;
  for (std::size_t i = 0; i < kernels::kPowers; ++i) {
    if (found.negative[i] == 0 && found.positive[i] == 0) continue;
    powers.append(
        py::make_tuple(kernels::kLowestPower + static_cast<int>(i), found.negative[i], found.positive[i]));
  }
  return py::make_tuple(found.finite, found.nans, found.infs, found.zeros, found.min, found.max, found.mean,
                        found.deviations, found.squares, powers);
}

}  // namespace

void bind_summary(py::module_& m) {
  m.def("summary", numbers_of, py::arg("x"),
        "Of a dense float32, bfloat16 or float16 tensor on the CPU: how many elements are finite, NaN, "
        "infinite, zero; of "
        "the finite ones minimum, maximum, mean, sum of squared deviations, sum of squares; and [(power, "
        "negative, "
        "positive)], how many have which power of two from -64 to 63, for those that some have.");
}

}  // namespace rekindle::python
