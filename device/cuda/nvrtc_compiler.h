// Compiles kernels for NVIDIA GPUs by NVRTC, and launches them by the driver.
//
// Both libraries are opened when a process needs them: neither a build nor a machine without a GPU needs
// them, and no header of CUDA is included here. What is called is of CUDA's stable interface (NVRTC: 11.1;
// driver: 7.0).
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/kernel_compiler.h"

namespace rekindle::device {

// libraries: paths of which the first that can be opened is, or depends on, libnvrtc. language: the text
// before each source. driver: the path of libcuda.
class NvrtcCompiler : public KernelCompiler {
 public:
  NvrtcCompiler(std::vector<std::string> libraries, std::string language,
                std::string driver = "libcuda.so.1");
  ~NvrtcCompiler() override;

  std::unique_ptr<RuntimeKernel> compile(const std::string& source, const std::string& name,
                                         c10::Device device) override;
  // The machine code of `source` for an architecture, such as "sm_90". Needs no GPU. Throws
  // std::runtime_error with the compiler's log, or with what is wrong with each library.
  std::string cubin(const std::string& source, const std::string& architecture);

 private:
  struct Nvrtc;
  const Nvrtc& nvrtc();

  const std::vector<std::string> libraries_;
  const std::string language_, driver_;
  std::once_flag opened_;
  std::unique_ptr<Nvrtc> nvrtc_;
};

}  // namespace rekindle::device
