// with_warnings(run): what PyTorch's operators warn of in `run` becomes a warning of Python's, as it does in
// eager.
#pragma once

#include <pybind11/pybind11.h>
#include <torch/csrc/Exceptions.h>

namespace rekindle::python {

// Calls run() without the GIL, which the caller holds. Throws what it throws, or python_error where a filter
// makes an error of a warning.
template <typename Run>
auto with_warnings(const Run& run) {
  torch::PyWarningHandler warnings;  // gives them to Python in the end, with the GIL
  try {
    const pybind11::gil_scoped_release release;
    return run();
  } catch (...) {
    warnings.set_in_exception();
    throw;
  }
}

}  // namespace rekindle::python
