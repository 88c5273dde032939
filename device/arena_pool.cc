#include "device/arena_pool.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "device/memory.h"
#include "device/workspace.h"

namespace rekindle::device {
namespace {

constexpr std::uint64_t kIdleTakes = 64;  // after so many of others an arena is freed

struct Pools {
  Mutex mutex;
  std::map<std::pair<at::DeviceType, at::DeviceIndex>, ArenaPool> by_device;
};

Pools& pools() {
  static auto& all = *new Pools;  // sessions of other static objects may outlive any
  return all;
}

}  // namespace

ArenaPool& ArenaPool::of(at::Device device) {
  Pools& all = pools();
  const std::lock_guard lock(all.mutex);
  return all.by_device.try_emplace({device.type(), device.index()}, device).first->second;
}

std::size_t ArenaPool::release_all() {
  Pools& all = pools();
  std::vector<ArenaPool*> every;  // they stay where they are
  {
    const std::lock_guard lock(all.mutex);
    for (auto& [device, pool] : all.by_device) every.push_back(&pool);
  }
  std::size_t bytes = Workspace::release_all();
  for (ArenaPool* const pool : every) bytes += pool->release();
  return bytes;
}

std::unique_ptr<Arena> ArenaPool::take(std::size_t bytes) {
  std::unique_ptr<Arena> arena;
  {
    Arenas freed;  // after the lock, and before there is a new one
    const std::lock_guard lock(mutex_);
    arena = best_of_idle(bytes);
    if (arena != nullptr) bytes = arena->memory.nbytes();
    ++taken_;
    used_bytes_ += bytes;
    freed = superfluous();
  }
  try {
    if (arena == nullptr) arena = std::make_unique<Arena>(Arena{allocate(bytes, device_), {}});
  } catch (...) {
    const std::lock_guard lock(mutex_);
    used_bytes_ -= bytes;
    throw;
  }
  const std::lock_guard lock(mutex_);
  most_used_ = std::max(most_used_, used_bytes_);
  return arena;
}

std::unique_ptr<Arena> ArenaPool::best_of_idle(std::size_t bytes) {
  auto best = idle_.end();
  for (auto one = idle_.begin(); one != idle_.end(); ++one) {
    const std::size_t has = one->arena->memory.nbytes();
    if (has < bytes || !one->arena->order.is_of_current_stream(device_)) continue;
    if (best == idle_.end() || has <= best->arena->memory.nbytes()) best = one;
  }
  if (best == idle_.end()) return nullptr;
  std::unique_ptr<Arena> arena = std::move(best->arena);
  idle_bytes_ -= arena->memory.nbytes();
  idle_.erase(best);
  return arena;
}

void ArenaPool::give_back(std::unique_ptr<Arena> arena) {
  Arenas freed;  // after the lock
  const std::lock_guard lock(mutex_);
  const std::size_t bytes = arena->memory.nbytes();
  used_bytes_ -= bytes;
  idle_bytes_ += bytes;
  idle_.push_back({std::move(arena), taken_});
  freed = superfluous();
}

ArenaPool::Arenas ArenaPool::superfluous() {
  Arenas freed;
  const auto is_too_much = [&](const Idle& one) {
    return idle_bytes_ + used_bytes_ > std::max(most_used_, used_bytes_) || taken_ - one.since > kIdleTakes;
  };
  while (!idle_.empty() && is_too_much(idle_.front())) {
    idle_bytes_ -= idle_.front().arena->memory.nbytes();
    freed.push_back(std::move(idle_.front().arena));
    idle_.erase(idle_.begin());
  }
  return freed;
}

std::size_t ArenaPool::release() {
  std::vector<Idle> freed;
  const std::lock_guard lock(mutex_);
  freed.swap(idle_);
  return std::exchange(idle_bytes_, 0);
}

std::size_t ArenaPool::idle_bytes() const {
  const std::lock_guard lock(mutex_);
  return idle_bytes_;
}

}  // namespace rekindle::device
