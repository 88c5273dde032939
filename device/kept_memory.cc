#include "device/kept_memory.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace rekindle::device {
namespace {

constexpr std::uint64_t kMostAllocations = 8192;  // of others, after which what is kept goes back: some steps
constexpr std::size_t kMostSizes = 4096;          // that are remembered

}  // namespace

void* KeptMemory::allocate(std::size_t bytes) {
  Blocks superfluous;
  void* memory = take(bytes, superfluous);
  give_back(superfluous);
  if (memory != nullptr) return memory;
  try {
    memory = source_.raw_allocate(bytes);
  } catch (...) {  // of any type: the source says in its own way that memory is out, and what is kept may do
    if (release() == 0) throw;
    memory = source_.raw_allocate(bytes);
  }
  add(memory, bytes);
  return memory;
}

bool KeptMemory::free(void* memory) {
  if (count_of(memory).load(std::memory_order_relaxed) == 0) return false;
  {
    const std::lock_guard lock(mutex_);
    const auto found = used_.find(memory);
    if (found == used_.end()) return false;
    const std::size_t bytes = found->second;
    used_.erase(found);
    count_of(memory).fetch_sub(1, std::memory_order_relaxed);
    used_bytes_ -= bytes;
    Size& size = sizes_[bytes];
    size.was_freed = true;
    if (size.recurs) {
      size.kept.push_back(kept_.insert(kept_.end(), {memory, bytes, allocations_}));
      kept_bytes_ += bytes;
      return true;
    }
  }
  source_.raw_deallocate(memory);
  return true;
}

void* KeptMemory::allocate_ahead(std::size_t bytes) {
  void* memory = nullptr;
  try {
    memory = source_.raw_allocate(bytes);
  } catch (...) {  // of any type, as in allocate(); the allocation that needs this memory will throw it again
    return nullptr;
  }
  const std::lock_guard lock(mutex_);
  ahead_bytes_ += bytes;
  used_bytes_ += bytes;
  most_used_ = std::max(most_used_, used_bytes_);
  return memory;
}

std::size_t KeptMemory::allocated_ahead() {
  const std::lock_guard lock(mutex_);
  return ahead_bytes_;
}

void KeptMemory::expect(void* memory, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  sizes_[bytes].expected.push_back(memory);
}

void KeptMemory::withdraw(void* memory, std::size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    const auto size = sizes_.find(bytes);
    if (size == sizes_.end() || std::erase(size->second.expected, memory) == 0) return;
    ahead_bytes_ -= bytes;
    used_bytes_ -= bytes;
  }
  source_.raw_deallocate(memory);
}

bool KeptMemory::was_freed(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto size = sizes_.find(bytes);
  return size != sizes_.end() && size->second.was_freed;
}

std::size_t KeptMemory::bytes() {
  const std::lock_guard lock(mutex_);
  return kept_bytes_;
}

std::size_t KeptMemory::release() {
  Blocks all;
  {
    const std::lock_guard lock(mutex_);
    all.swap(kept_);
    kept_bytes_ = 0;
    for (auto& [bytes, size] : sizes_) {
      size.kept.clear();
      for (void* const memory : size.expected) all.push_back({memory, bytes, allocations_});
      ahead_bytes_ -= size.expected.size() * bytes;
      used_bytes_ -= size.expected.size() * bytes;
      size.expected.clear();
    }
  }
  give_back(all);
  std::size_t bytes = 0;
  for (const Block& block : all) bytes += block.bytes;
  return bytes;
}

// Returns memory that was kept; null where there is none, and what has to go before there is more.
void* KeptMemory::take(std::size_t bytes, Blocks& superfluous) {
  const std::lock_guard lock(mutex_);
  ++allocations_;
  Size& size = sizes_[bytes];
  if (!size.expected.empty()) {
    void* const memory = size.expected.back();
    size.expected.pop_back();
    ahead_bytes_ -= bytes;
    note_use(memory, bytes);
    return memory;
  }
  if (size.kept.empty()) {
    size.recurs = size.recurs || size.was_freed;
    superfluous = too_much_for(bytes);
    forget_sizes();
    return nullptr;
  }
  const Blocks::iterator last = size.kept.back();
  void* const memory = last->memory;
  size.kept.pop_back();
  kept_.erase(last);
  kept_bytes_ -= bytes;
  used_bytes_ += bytes;
  note_use(memory, bytes);
  return memory;
}

void KeptMemory::add(void* memory, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  used_bytes_ += bytes;
  most_used_ = std::max(most_used_, used_bytes_);
  note_use(memory, bytes);
}

void KeptMemory::note_use(void* memory, std::size_t bytes) {
  used_.emplace(memory, bytes);
  count_of(memory).fetch_add(1, std::memory_order_relaxed);
}

// Takes out what was kept longest, as far as it and `bytes` more in use were more than was ever in use.
KeptMemory::Blocks KeptMemory::too_much_for(std::size_t bytes) {
  Blocks freed;
  const std::size_t used = used_bytes_ + bytes, most = std::max(most_used_, used);
  while (!kept_.empty()) {
    const Block& oldest = kept_.front();
    if (used + kept_bytes_ <= most && allocations_ - oldest.since <= kMostAllocations) break;
    std::erase(sizes_[oldest.bytes].kept, kept_.begin());
    kept_bytes_ -= oldest.bytes;
    freed.splice(freed.end(), kept_, kept_.begin());
  }
  return freed;
}

// Calls whose sizes are always others would be remembered for good.
void KeptMemory::forget_sizes() {
  if (sizes_.size() <= kMostSizes) return;
  std::erase_if(sizes_,
                [](const auto& entry) { return entry.second.kept.empty() && entry.second.expected.empty(); });
}

void KeptMemory::give_back(const Blocks& blocks) {
  for (const Block& block : blocks) source_.raw_deallocate(block.memory);
}

std::atomic<std::uint16_t>& KeptMemory::count_of(const void* memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  return counts_[(address >> 6 ^ address >> 18) % counts_.size()];
}

}  // namespace rekindle::device
