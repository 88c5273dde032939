// What is asked of the driver, by one that notes it.
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <catch2/catch.hpp>

#include "device/cuda/nvrtc_compiler.h"
#include "src/fusion/kernel_source.h"

using rekindle::device::NvrtcCompiler;

namespace {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;

// Its current stream has the handle 77.
struct Guard : c10::impl::NoOpDeviceGuardImpl<kType> {
  void* getStreamNativeHandle(const c10::Stream) const override { return reinterpret_cast<void*>(77); }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

template <typename Signature>
Signature* function(const char* name) {
  void* const library = dlopen(REKINDLE_FAKE_DRIVER, RTLD_NOW);
  REQUIRE(library != nullptr);
  return reinterpret_cast<Signature*>(dlsym(library, name));
}

std::string log() { return function<const char*()>("fake_driver_log")(); }

constexpr const char* kSource = "KERNEL(fused, 2) { if (THREAD == 0) *(int*)WORD(0) = 1; }";

std::string language() {
  return std::string(rekindle::fusion::cuda_language()) + rekindle::fusion::common_language();
}

}  // namespace

TEST_CASE("A kernel is loaded once, and launched on the device's current stream") {
  if (std::string(REKINDLE_NVRTC).empty()) return;
  NvrtcCompiler compiler({REKINDLE_NVRTC}, language(), REKINDLE_FAKE_DRIVER);
  const c10::Device device(kType, 0);
  const auto kernel = compiler.compile(kSource, "fused", device);
  log();
  kernel->launch(3, 256, {11, 12}, device);
  CHECK(log() ==
        "cuDevicePrimaryCtxRetain 0\ncuCtxSetCurrent\ncuModuleLoadData ELF\ncuModuleGetFunction fused\n"
        "cuLaunchKernel 3 256 0 on 77: 11 12\n");
  kernel->launch(5, 256, {13, 14}, device);
  CHECK(log() == "cuLaunchKernel 5 256 0 on 77: 13 14\n");
}

TEST_CASE("A launch that fails says what the driver says") {
  if (std::string(REKINDLE_NVRTC).empty()) return;
  NvrtcCompiler compiler({REKINDLE_NVRTC}, language(), REKINDLE_FAKE_DRIVER);
  const c10::Device device(kType, 0);
  const auto kernel = compiler.compile(kSource, "fused", device);
  function<void(int)>("fail_launches")(1);
  CHECK_THROWS_WITH(
      kernel->launch(1, 256, {0, 0}, device),
      Catch::Matchers::Contains("cuLaunchKernel: an illegal memory access was encountered (700)"));
  function<void(int)>("fail_launches")(0);
}

TEST_CASE("Without a driver, compiling says so") {
  if (std::string(REKINDLE_NVRTC).empty()) return;
  NvrtcCompiler compiler({REKINDLE_NVRTC}, language(), "libnodriver.so");
  CHECK_THROWS_WITH(compiler.compile(kSource, "fused", c10::Device(kType, 0)),
                    Catch::Matchers::Contains("libnodriver.so"));
}
