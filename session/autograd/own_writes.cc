#include "session/autograd/own_writes.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "session/autograd/saved_versions.h"
#include "src/base/mutex.h"

namespace rekindle::session {
namespace {

// How often tensors were written without a change. Counters that nobody else has any more are forgotten.
class OwnWrites {
 public:
  void add(const c10::VariableVersion& counter, std::uint32_t times) {
    const std::lock_guard lock(mutex_);
    any_ = true;
    std::erase_if(counted_, [](const Counted& one) { return one.counter.unique(); });
    const auto known = std::ranges::find(counted_, identity_of(counter), &Counted::identity);
    if (known == counted_.end()) {
      counted_.push_back({counter, identity_of(counter), times});
    } else {
      known->times += times;
    }
  }

  std::uint32_t of(const c10::VariableVersion& counter) {
    if (!any_) return 0;
    const std::lock_guard lock(mutex_);
    const auto known = std::ranges::find(counted_, identity_of(counter), &Counted::identity);
    return known == counted_.end() ? 0 : known->times;
  }

 private:
  struct Counted {
    c10::VariableVersion counter;
    std::uintptr_t identity;
    std::uint32_t times;
  };
  static std::uintptr_t identity_of(const c10::VariableVersion& counter) {
    return identities_of({counter}).front();
  }

  std::atomic<bool> any_ = false;  // nearly always
  Mutex mutex_;
  std::vector<Counted> counted_;
};

OwnWrites& own_writes() {
  static OwnWrites writes;
  return writes;
}

}  // namespace

std::uint32_t version_of(const c10::VariableVersion& counter) {
  return counter.current_version() - own_writes().of(counter);
}

void note_own_writes(std::span<const std::pair<at::Tensor, std::uint32_t>> versions) {
  std::vector<std::uintptr_t> noted;  // tensors that see one memory have one counter
  for (const auto& [tensor, version] : versions) {
    const c10::VariableVersion& counter = torch::autograd::impl::version_counter(tensor);
    const std::uintptr_t identity = identities_of({counter}).front();
    if (!counter.enabled() || std::ranges::find(noted, identity) != noted.end()) continue;
    noted.push_back(identity);
    const std::uint32_t now = counter.current_version();
    if (now != version) own_writes().add(counter, now - version);
  }
}

}  // namespace rekindle::session
