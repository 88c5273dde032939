#include "device/launch_recorder.h"

#include <map>
#include <mutex>
#include <utility>

#include "src/base/mutex.h"

namespace rekindle::device {
namespace {

struct Known {
  Mutex mutex;
  std::map<c10::DeviceType, std::shared_ptr<const LaunchRecorders>> by_type;
};

Known& known() {
  static auto& all = *new Known;  // what a maker owns may be Python's, which ends first
  return all;
}

}  // namespace

void set_launch_recorders(c10::DeviceType type, LaunchRecorders recorders) {
  auto now = recorders.make ? std::make_shared<const LaunchRecorders>(std::move(recorders)) : nullptr;
  Known& all = known();
  const std::lock_guard lock(all.mutex);
  all.by_type[type].swap(now);  // those before are let go without the lock
}

std::shared_ptr<const LaunchRecorders> launch_recorders(c10::DeviceType type) {
  Known& all = known();
  const std::lock_guard lock(all.mutex);
  const auto found = all.by_type.find(type);
  return found == all.by_type.end() ? nullptr : found->second;
}

}  // namespace rekindle::device
