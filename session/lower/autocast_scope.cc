#include "session/lower/autocast_scope.h"

#include <ATen/autocast_mode.h>

namespace rekindle::session {

AutocastScope::AutocastScope(at::DeviceType device, std::optional<at::ScalarType> dtype)
    : keys_(c10::impl::tls_local_dispatch_key_set()),
      device_(device),
      before_(at::autocast::get_autocast_dtype(device)) {
  at::autocast::set_autocast_enabled(device, dtype.has_value());
  if (dtype) at::autocast::set_autocast_dtype(device, *dtype);
  at::autocast::increment_nesting();
}

AutocastScope::~AutocastScope() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_dtype(device_, before_);
}

}  // namespace rekindle::session
