#include "device/stream_order.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace rekindle::device {

void StreamOrder::enter(const at::Tensor& memory) {
  if (memory.device().is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(memory.device().type());
  const c10::Stream now = guard.getStream(memory.device());
  if (last_ == now) return;
  if (last_) {
    c10::Event event(memory.device().type());
    event.record(*last_);  // later than it need be, and only where streams change
    event.block(now);
    guard.recordDataPtrOnStream(memory.storage().data_ptr(), now);
  }
  last_ = now;
}

bool StreamOrder::is_of_current_stream(at::Device device) const {
  return !last_ || last_ == c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace rekindle::device
