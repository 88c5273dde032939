// AutocastScope: while alive, PyTorch's operators run under autocast, as in `with torch.autocast(...)`, or,
// for no dtype, without it. Internal to the session room.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>

namespace rekindle::session {

class AutocastScope {
 public:
  AutocastScope(at::DeviceType device, std::optional<at::ScalarType> dtype);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  const c10::impl::ForceDispatchKeyGuard keys_;  // what is enabled is a key
  const at::DeviceType device_;
  const at::ScalarType before_;
};

}  // namespace rekindle::session
