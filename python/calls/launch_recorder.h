// A recorder of launches that is written in Python, as PyTorch has CUDA graphs there.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <string>

namespace rekindle::python {

// Makes `make(device: str)` the maker of recorders for devices of the type `type`, such as "cuda". A recorder
// has record(work), which calls work() once, on the thread that called it, and returns something with
// replay(). It lets pass what work() raises. runs_before: of device::LaunchRecorders. None in the place of
// `make`: there are none.
void set_launch_recorders(const std::string& type, pybind11::object make, std::size_t runs_before);

}  // namespace rekindle::python
