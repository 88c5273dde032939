#include "export_cache/tiers/fork_guard.h"

#include <pthread.h>

#include <atomic>

namespace rekindle {
namespace {

// Lock-free, so that the handler may touch them in a child whose other threads are gone.
std::atomic<int> active{0};
std::atomic<bool> no_use{false};

void in_child() {
  if (active.exchange(0) > 0) no_use = true;
}

}  // namespace

Result<ForkGuard> ForkGuard::enter() {
  static const int registered = pthread_atfork(nullptr, nullptr, in_child);
  if (registered != 0) return unsupported("the export cache cannot watch for forks in this process");
  if (no_use) {
    return unsupported(
        "this process was forked while its parent used the export cache; start it with spawn instead");
  }
  ++active;
  return ForkGuard();
}

ForkGuard::ForkGuard(ForkGuard&& other) noexcept : held_(other.held_) { other.held_ = false; }

ForkGuard::~ForkGuard() {
  if (held_) --active;
}

}  // namespace rekindle
