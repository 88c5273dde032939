// Who compiles kernels for a type of device: NVRTC for "cuda", or a compiler that is written in Python.
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <vector>

namespace rekindle::python {

// Lets kernels for GPUs be compiled by the first of these libraries that can be opened, once a kernel is to
// be compiled (device/cuda/nvrtc_compiler.h). at_once: as of device::set_kernel_compiler().
void use_nvrtc(std::vector<std::string> libraries, bool at_once);

// Makes `compiler` that of devices of the type `type`. It has language(), the text that is before every
// source in the place of CUDA's, and compile(source, name, device: str), which returns something with
// launch(blocks, threads, words: list[int]). Kernels are compiled where they are asked for. None: there is no
// compiler.
void set_kernel_compiler(const std::string& type, pybind11::object compiler);

}  // namespace rekindle::python
