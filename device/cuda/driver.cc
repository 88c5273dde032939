#include "device/cuda/driver.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <array>
#include <map>
#include <mutex>
#include <utility>

#include "src/base/mutex.h"

namespace rekindle::device {
namespace {

// Of the enumeration CUdevice_attribute.
constexpr int kMajor = 75, kMinor = 76;

void* current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
}

}  // namespace

class CudaKernel : public RuntimeKernel {
 public:
  CudaKernel(std::shared_ptr<const CudaDriver> driver, std::string code, std::string name)
      : driver_(std::move(driver)), code_(std::move(code)), name_(std::move(name)) {}

  void launch(unsigned blocks, unsigned threads, const std::vector<std::int64_t>& words,
              c10::Device device) override {
    std::call_once(loaded_, [&] { load(device); });
    std::array<void*, 1> parameters = {const_cast<std::int64_t*>(words.data())};
    driver_->check(driver_->launch_.call(function_, blocks, 1, 1, threads, 1, 1, 0, current_stream(device),
                                         parameters.data(), nullptr),
                   "cuLaunchKernel");
  }

 private:
  void load(c10::Device device) {
    driver_->enter(device);
    driver_->check(driver_->load_module_.call(&module_, code_.data()), "cuModuleLoadData");
    driver_->check(driver_->get_function_.call(&function_, module_, name_.c_str()), "cuModuleGetFunction");
    code_ = {};
  }

  std::shared_ptr<const CudaDriver> driver_;
  std::string code_, name_;
  std::once_flag loaded_;
  // They stay as long as the process runs, whose end may come after the driver's.
  void *module_ = nullptr, *function_ = nullptr;
};

std::shared_ptr<const CudaDriver> CudaDriver::open(const std::string& path) {
  static Mutex mutex;
  static std::map<std::string, std::shared_ptr<const CudaDriver>> drivers;
  const std::lock_guard lock(mutex);
  std::shared_ptr<const CudaDriver>& driver = drivers[path];
  if (driver == nullptr) driver = std::make_shared<const CudaDriver>(path);
  return driver;
}

CudaDriver::CudaDriver(const std::string& path)
    : library_(path),
      init_(library_, "cuInit"),
      get_device_(library_, "cuDeviceGet"),
      attribute_(library_, "cuDeviceGetAttribute"),
      current_context_(library_, "cuCtxGetCurrent"),
      set_context_(library_, "cuCtxSetCurrent"),
      retain_context_(library_, "cuDevicePrimaryCtxRetain"),
      load_module_(library_, "cuModuleLoadData"),
      get_function_(library_, "cuModuleGetFunction"),
      launch_(library_, "cuLaunchKernel"),
      error_(library_, "cuGetErrorString") {
  check(init_.call(0), "cuInit");
}

std::string CudaDriver::architecture(c10::Device device) const {
  int number = 0, major = 0, minor = 0;
  check(get_device_.call(&number, device.index()), "cuDeviceGet");
  check(attribute_.call(&major, kMajor, number), "cuDeviceGetAttribute");
  check(attribute_.call(&minor, kMinor, number), "cuDeviceGetAttribute");
  return "sm_" + std::to_string(major) + std::to_string(minor);
}

std::unique_ptr<RuntimeKernel> CudaDriver::kernel(std::string code, std::string name) const {
  return std::make_unique<CudaKernel>(shared_from_this(), std::move(code), std::move(name));
}

// A thread that has launched nothing yet has no context; PyTorch's is the device's primary one.
void CudaDriver::enter(c10::Device device) const {
  void* context = nullptr;
  check(current_context_.call(&context), "cuCtxGetCurrent");
  if (context != nullptr) return;
  int number = 0;
  check(get_device_.call(&number, device.index()), "cuDeviceGet");
  check(retain_context_.call(&context, number), "cuDevicePrimaryCtxRetain");
  check(set_context_.call(context), "cuCtxSetCurrent");
}

void CudaDriver::check(int result, const char* what) const {
  if (result == 0) return;
  const char* text = nullptr;
  if (error_.call(result, &text) != 0 || text == nullptr) text = "unknown error";
  TORCH_CHECK(false, what, ": ", text, " (", result, ")");
}

}  // namespace rekindle::device
