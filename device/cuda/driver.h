// The parts of CUDA's driver interface by which a compiled kernel is loaded and launched. Internal to
// device/cuda.
#pragma once

#include <memory>
#include <string>

#include "device/cuda/library.h"
#include "device/kernel_compiler.h"

namespace rekindle::device {

class CudaDriver : public std::enable_shared_from_this<CudaDriver> {
 public:
  // One for each path. Throws std::runtime_error where there is no driver.
  static std::shared_ptr<const CudaDriver> open(const std::string& path);
  explicit CudaDriver(const std::string& path);

  // "sm_90".
  std::string architecture(c10::Device device) const;
  // Loads the code at the first launch, on a thread that computes on the device.
  std::unique_ptr<RuntimeKernel> kernel(std::string code, std::string name) const;

 private:
  friend class CudaKernel;
  // Throws c10::Error, as what a device says is of a user's run.
  void check(int result, const char* what) const;
  void enter(c10::Device device) const;

  Library library_;
  Function<int(unsigned)> init_;
  Function<int(int*, int)> get_device_;
  Function<int(int*, int, int)> attribute_;
  Function<int(void**)> current_context_;
  Function<int(void*)> set_context_;
  Function<int(void**, int)> retain_context_;
  Function<int(void**, const void*)> load_module_;
  Function<int(void**, void*, const char*)> get_function_;
  Function<int(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
               void**)>
      launch_;
  Function<int(int, const char**)> error_;
};

}  // namespace rekindle::device
