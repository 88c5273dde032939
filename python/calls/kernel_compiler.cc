#include "python/calls/kernel_compiler.h"

#include <pybind11/stl.h>

#include <memory>
#include <utility>

#include "device/cuda/nvrtc_compiler.h"
#include "device/kernel_compiler.h"
#include "python/calls/owned.h"
#include "src/fusion/kernel_source.h"

namespace rekindle::python {

namespace py = pybind11;

namespace {

class KernelInPython : public device::RuntimeKernel {
 public:
  explicit KernelInPython(py::object launch) : launch_(std::move(launch)) {}
  void launch(unsigned blocks, unsigned threads, const std::vector<std::int64_t>& words,
              c10::Device) override {
    const py::gil_scoped_acquire gil;
    (*launch_)(blocks, threads, words);
  }

 private:
  Owned<py::object> launch_;
};

class CompilerInPython : public device::KernelCompiler {
 public:
  explicit CompilerInPython(py::object compiler)
      : language_(compiler.attr("language")().cast<std::string>() + fusion::common_language()),
        compile_(compiler.attr("compile")) {}

  std::unique_ptr<device::RuntimeKernel> compile(const std::string& source, const std::string& name,
                                                 c10::Device device) override {
    const py::gil_scoped_acquire gil;
    return std::make_unique<KernelInPython>(
        (*compile_)(language_ + source, name, device.str()).attr("launch"));
  }

 private:
  std::string language_;
  Owned<py::object> compile_;
};

}  // namespace

void use_nvrtc(std::vector<std::string> libraries, bool at_once) {
  const std::string language = std::string(fusion::cuda_language()) + fusion::common_language();
  auto compiler = std::make_shared<device::NvrtcCompiler>(std::move(libraries), language);
  device::set_kernel_compiler(c10::kCUDA, std::move(compiler), at_once);
}

void set_kernel_compiler(const std::string& type, py::object compiler) {
  const c10::DeviceType device_type = c10::Device(type).type();
  if (compiler.is_none()) return device::set_kernel_compiler(device_type, nullptr);
  device::set_kernel_compiler(device_type, std::make_shared<CompilerInPython>(std::move(compiler)),
                              /*at_once=*/true);
}

}  // namespace rekindle::python
