#include "device/random_state.h"

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <mutex>
#include <optional>

namespace rekindle::device {
namespace {

// The type of device whose memory this process has allocated. To ask at::getAccelerator() would be to ask the
// driver, after which a forked child could not use a GPU any more.
std::optional<at::DeviceType> accelerator_in_use() {
  for (const at::DeviceType type : {at::DeviceType::CUDA, at::DeviceType::PrivateUse1}) {
    if (!c10::impl::hasDeviceGuardImpl(type)) continue;
    auto* const allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(type));
    if (allocator != nullptr && allocator->initialized()) return type;
  }
  return std::nullopt;
}

// The generators in the order of RandomStates; none where a device is not in use.
std::vector<std::optional<at::Generator>> generators() {
  at::Context& context = at::globalContext();
  std::vector<std::optional<at::Generator>> found{context.defaultGenerator(at::kCPU)};
  const std::optional<at::DeviceType> type = accelerator_in_use();
  if (!type) return found;
  const at::AcceleratorHooksInterface& hooks = context.getAcceleratorHooksInterface(*type);
  for (at::DeviceIndex index = 0; index < hooks.deviceCount(); ++index) {
    found.emplace_back();
    if (hooks.hasPrimaryContext(index)) found.back() = context.defaultGenerator({*type, index});
  }
  return found;
}

}  // namespace

RandomStates random_states() {
  RandomStates states;
  for (std::optional<at::Generator>& generator : generators()) {
    states.emplace_back();
    if (!generator) continue;
    const std::lock_guard lock(generator->mutex());
    states.back() = generator->get_state();
  }
  return states;
}

void set_random_states(const RandomStates& states) {
  std::vector<std::optional<at::Generator>> found = generators();
  for (std::size_t i = 0; i < states.size() && i < found.size(); ++i) {
    if (!states[i].defined() || !found[i]) continue;
    const std::lock_guard lock(found[i]->mutex());
    found[i]->set_state(states[i]);
  }
}

void seed_random_states(std::uint64_t seed) {
  for (std::optional<at::Generator>& generator : generators()) {
    if (!generator) continue;
    const std::lock_guard lock(generator->mutex());
    generator->set_current_seed(seed);
  }
}

}  // namespace rekindle::device
