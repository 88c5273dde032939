#include "device/random_state.h"

#include <ATen/Context.h>

#include <mutex>

namespace rekindle::device {

at::Tensor random_state(at::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

}  // namespace rekindle::device
