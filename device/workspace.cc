#include "device/workspace.h"

#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "src/base/mutex.h"

namespace rekindle::device {
namespace {

constexpr std::size_t kReserved = std::size_t{16} << 30;  // of address space: no memory
constexpr std::size_t kStep = 1 << 20;                    // by which the usable part grows
constexpr int kTakes = 1024;                              // after so many, what none of them used goes back

struct Idle {
  Mutex mutex;
  std::vector<std::unique_ptr<Workspace>> workspaces;
};

Idle& idle() {
  static auto& all = *new Idle;  // tensors of other static objects may outlive any
  return all;
}

}  // namespace

std::unique_ptr<Workspace> Workspace::take() {
  {
    const std::lock_guard lock(idle().mutex);
    if (auto& workspaces = idle().workspaces; !workspaces.empty()) {
      std::unique_ptr<Workspace> last = std::move(workspaces.back());
      workspaces.pop_back();
      return last;
    }
  }
  void* const begin = mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                           /*fd=*/-1, /*offset=*/0);
  if (begin == MAP_FAILED) return nullptr;
  return std::unique_ptr<Workspace>(new Workspace(static_cast<char*>(begin)));
}

void Workspace::give_back(std::unique_ptr<Workspace> workspace) {
  if (++workspace->takes_ == kTakes) {
    workspace->shrink(workspace->recent_);
    workspace->recent_ = 0;
    workspace->takes_ = 0;
  }
  const std::lock_guard lock(idle().mutex);
  idle().workspaces.push_back(std::move(workspace));
}

std::size_t Workspace::release_all() {
  const std::lock_guard lock(idle().mutex);
  std::size_t bytes = 0;
  for (const auto& workspace : idle().workspaces) bytes += workspace->shrink(0);
  return bytes;
}

Workspace::~Workspace() { munmap(begin_, kReserved); }

bool Workspace::reach(std::size_t bytes) {
  if (bytes > kReserved) return false;
  recent_ = std::max(recent_, bytes);
  if (bytes <= usable_) return true;
  const std::size_t usable = std::min((bytes + kStep - 1) / kStep * kStep, kReserved);
  if (mprotect(begin_ + usable_, usable - usable_, PROT_READ | PROT_WRITE) != 0) return false;
  usable_ = usable;
  return true;
}

std::size_t Workspace::shrink(std::size_t bytes) {
  const std::size_t kept = (bytes + kStep - 1) / kStep * kStep;
  if (kept >= usable_) return 0;
  const std::size_t freed = std::exchange(usable_, kept) - kept;
  madvise(begin_ + kept, freed, MADV_DONTNEED);
  mprotect(begin_ + kept, freed, PROT_NONE);
  return freed;
}

}  // namespace rekindle::device
