#include "device/kept_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace rekindle::device {
namespace {

constexpr std::uint64_t kMostAllocations = 8192;  // of others, after which what is kept goes back: some steps
constexpr std::size_t kMostSizes = 4096;          // that are remembered

// Lets the system have the pages of a block behind its first `kept` bytes; false where it does not take them.
bool give_up_pages(void* memory, std::size_t bytes, std::size_t kept) {
  static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<std::uintptr_t>(memory) + kept + page - 1) / page * page;
  const auto end = (reinterpret_cast<std::uintptr_t>(memory) + bytes) / page * page;
  return end <= begin || madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED) == 0;
}

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
  Blocks first;  // of its size
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
      size.kept.push_back(kept_.insert(kept_.end(), {memory, bytes, bytes, allocations_}));
      kept_bytes_ += bytes;
      return true;
    }
    first.push_back({memory, bytes, 0, allocations_});
  }
  if (give_up_pages(memory, first.front().bytes, 0)) {
    keep_empty(std::move(first));
  } else {
    give_back(first);
  }
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
    all.splice(all.end(), empty_);
    kept_bytes_ = empty_bytes_ = 0;
    for (auto& [bytes, size] : sizes_) {
      size.kept.clear();
      size.empty.clear();
      for (void* const memory : size.expected) all.push_back({memory, bytes, bytes, allocations_});
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

// Returns memory that was kept, rather with its pages; null where there is none. Finds what has to go before
// there is more.
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
  void* memory = nullptr;
  if (!size.kept.empty()) {
    kept_bytes_ -= size.kept.back()->resident;
    memory = taken_from(size.kept, kept_);
  } else {
    size.recurs = size.recurs || size.was_freed;
    if (!size.empty.empty()) {
      empty_bytes_ -= bytes;
      memory = taken_from(size.empty, empty_);
    }
  }
  make_room(bytes, superfluous);
  forget_sizes();
  if (memory == nullptr) return nullptr;
  used_bytes_ += bytes;
  most_used_ = std::max(most_used_, used_bytes_);
  note_use(memory, bytes);
  return memory;
}

void* KeptMemory::taken_from(std::vector<Blocks::iterator>& of_size, Blocks& all) {
  const Blocks::iterator last = of_size.back();
  void* const memory = last->memory;
  of_size.pop_back();
  all.erase(last);
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

// Takes pages from what was kept longest, as far as there were too many with `bytes` more in use, and takes
// out what nobody has taken for long.
void KeptMemory::make_room(std::size_t bytes, Blocks& superfluous) {
  const std::size_t used = used_bytes_ + bytes, most_used = std::max(most_used_, used);
  const std::size_t most = most_used + slack_of(most_used);
  const auto is_old = [&](const Blocks& blocks) {
    return !blocks.empty() && allocations_ - blocks.front().since > kMostAllocations;
  };
  while (!kept_.empty() && (used + kept_bytes_ > most || is_old(kept_)))
    shrink_oldest(is_old(kept_) ? kept_.front().bytes : used + kept_bytes_ - most, superfluous);
  take_oldest_ranges([&] { return empty_bytes_ > most_used_ || is_old(empty_); }, superfluous);
}

void KeptMemory::shrink_oldest(std::size_t by, Blocks& superfluous) {
  const auto oldest = kept_.begin();
  const std::size_t resident = oldest->resident - std::min(by, oldest->resident);
  kept_bytes_ -= oldest->resident - resident;
  const bool given_up = give_up_pages(oldest->memory, oldest->bytes, resident);
  oldest->resident = resident;
  if (given_up && resident > 0) return;
  kept_bytes_ -= resident;
  std::erase(sizes_[oldest->bytes].kept, oldest);
  if (!given_up) return superfluous.splice(superfluous.end(), kept_, oldest);
  sizes_[oldest->bytes].empty.push_back(oldest);
  empty_bytes_ += oldest->bytes;
  empty_.splice(empty_.end(), kept_, oldest);
}

template <typename Condition>
void KeptMemory::take_oldest_ranges(const Condition& go, Blocks& to) {
  while (!empty_.empty() && go()) {
    const auto oldest = empty_.begin();
    empty_bytes_ -= oldest->bytes;
    std::erase(sizes_[oldest->bytes].empty, oldest);
    to.splice(to.end(), empty_, oldest);
  }
}

void KeptMemory::keep_empty(Blocks emptied) {
  Blocks superfluous;
  {
    const std::lock_guard lock(mutex_);
    const auto block = emptied.begin();
    empty_bytes_ += block->bytes;
    empty_.splice(empty_.end(), emptied);
    sizes_[block->bytes].empty.push_back(block);
    take_oldest_ranges([&] { return empty_bytes_ > most_used_; }, superfluous);
  }
  give_back(superfluous);
}

// Calls whose sizes are always others would be remembered for good.
void KeptMemory::forget_sizes() {
  if (sizes_.size() <= kMostSizes) return;
  std::erase_if(sizes_, [](const auto& entry) {
    const Size& size = entry.second;
    return size.kept.empty() && size.empty.empty() && size.expected.empty();
  });
}

void KeptMemory::give_back(const Blocks& blocks) {
  for (const Block& block : blocks) source_.raw_deallocate(block.memory);
}

std::atomic<std::uint16_t>& KeptMemory::count_of(const void* memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  return counts_[(address >> 6 ^ address >> 18) % counts_.size()];
}

}  // namespace rekindle::device
