#include "device/cuda/nvrtc_compiler.h"

#include <cstddef>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "device/cuda/driver.h"
#include "device/cuda/library.h"

namespace rekindle::device {

struct NvrtcCompiler::Nvrtc {
  using Program = void*;

  explicit Nvrtc(const std::string& path)
      : library(path),
        create(library, "nvrtcCreateProgram"),
        destroy(library, "nvrtcDestroyProgram"),
        compile(library, "nvrtcCompileProgram"),
        log_size(library, "nvrtcGetProgramLogSize"),
        log(library, "nvrtcGetProgramLog"),
        cubin_size(library, "nvrtcGetCUBINSize"),
        cubin(library, "nvrtcGetCUBIN"),
        error(library, "nvrtcGetErrorString") {
    // NVRTC opens these itself, where the loader finds them: not in a Python package.
    library.open_beside(reinterpret_cast<const void*>(create.call), "libnvrtc-builtins.so.");
  }

  void check(int result, const char* what) const {
    if (result != 0) throw std::runtime_error(std::string(what) + ": " + error.call(result));
  }

  std::string log_of(Program program) const {
    std::size_t size = 0;
    if (log_size.call(program, &size) != 0) return "";
    std::string text(size, '\0');
    return log.call(program, text.data()) == 0 ? text.c_str() : "";
  }

  Library library;
  Function<int(Program*, const char*, const char*, int, const char* const*, const char* const*)> create;
  Function<int(Program*)> destroy;
  Function<int(Program, int, const char* const*)> compile;
  Function<int(Program, std::size_t*)> log_size;
  Function<int(Program, char*)> log;
  Function<int(Program, std::size_t*)> cubin_size;
  Function<int(Program, char*)> cubin;
  Function<const char*(int)> error;
};

NvrtcCompiler::NvrtcCompiler(std::vector<std::string> libraries, std::string language, std::string driver)
    : libraries_(std::move(libraries)), language_(std::move(language)), driver_(std::move(driver)) {}

NvrtcCompiler::~NvrtcCompiler() = default;

const NvrtcCompiler::Nvrtc& NvrtcCompiler::nvrtc() {
  std::call_once(opened_, [&] {
    std::string reasons;
    for (const std::string& library : libraries_) {
      try {
        nvrtc_ = std::make_unique<Nvrtc>(library);
        return;
      } catch (const std::runtime_error& error) {
        reasons += std::string("\n  ") + error.what();
      }
    }
    throw std::runtime_error("NVRTC cannot be opened:" + reasons);
  });
  return *nvrtc_;
}

std::string NvrtcCompiler::cubin(const std::string& source, const std::string& architecture) {
  const Nvrtc& nvrtc = this->nvrtc();
  Nvrtc::Program program = nullptr;
  const std::string text = language_ + source;
  nvrtc.check(nvrtc.create.call(&program, text.c_str(), "rekindle_fused.cu", 0, nullptr, nullptr), "NVRTC");
  const std::unique_ptr<void, std::function<void(void*)>> owner(program,
                                                                [&](void*) { nvrtc.destroy.call(&program); });
  const std::string target = "--gpu-architecture=" + architecture;
  const std::vector<const char*> options = {target.c_str(), "--std=c++17"};
  const int result = nvrtc.compile.call(program, static_cast<int>(options.size()), options.data());
  if (result != 0)
    throw std::runtime_error(std::string("NVRTC: ") + nvrtc.error.call(result) + "\n" +
                             nvrtc.log_of(program));
  std::size_t size = 0;
  nvrtc.check(nvrtc.cubin_size.call(program, &size), "NVRTC");
  std::string code(size, '\0');
  nvrtc.check(nvrtc.cubin.call(program, code.data()), "NVRTC");
  return code;
}

std::unique_ptr<RuntimeKernel> NvrtcCompiler::compile(const std::string& source, const std::string& name,
                                                      c10::Device device) {
  const std::shared_ptr<const CudaDriver> driver = CudaDriver::open(driver_);
  return driver->kernel(cubin(source, driver->architecture(device)), name);
}

}  // namespace rekindle::device
