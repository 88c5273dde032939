// KeptMemory: large memory of the CPU that training steps take, let go, and take again.
//
// An example: GPT-2 has 500 MB of gradients, which zero_grad() frees and the next backward allocates. The
// heap gives them back to the system in between, and gets them as 120,000 empty pages, one interrupt each: a
// fifth of the backward's time (docs/decisions/0050-memory-that-comes-back.md). Kept, they are there.
//
// A block that may not stay keeps its address and loses pages (MADV_DONTNEED), as many as have to go: a heap
// would have no use for the hole, as a chunk that was freed is too small for an aligned one of its own size.
#pragma once

#include <c10/core/Allocator.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>
#include <vector>

#include "src/base/mutex.h"

namespace rekindle::device {

// Keeps what is freed for the next allocation of as many bytes: with its pages, where such were allocated
// after a free before, else as an empty range of addresses. Hardly makes the process larger: pages that are
// kept and those in use together are at most what was in use at once and slack_of() that; empty ranges alone
// are no larger than what was in use. Thread-safe.
class KeptMemory {
 public:
  static constexpr std::size_t kLarge = 256 << 10;  // bytes; for less, the heap keeps what is freed
  // An optimizer takes a few blocks of one size after those of another, never of all sizes at once.
  static constexpr std::size_t slack_of(std::size_t used) {
    return std::clamp<std::size_t>(used / 64, 4 << 20, 32 << 20);
  }

  // `source`: where it comes from and goes back to; outlives this and has a raw_deleter().
  explicit KeptMemory(c10::Allocator& source) : source_(source) {}

  // Throws what the source does, after all that is kept went back to it.
  void* allocate(std::size_t bytes);
  // Frees memory, or keeps it. Returns false for what allocate() did not give, which is left as it is.
  bool free(void* memory);
  // Allocates memory for a later allocation, and counts it as in use from now on; null where the source has
  // no more.
  void* allocate_ahead(std::size_t bytes);
  // Lets the next allocation of as many bytes have what allocate_ahead() returned.
  void expect(void* memory, std::size_t bytes);
  // Frees expected memory; does nothing where an allocation has it, or release() has freed it.
  void withdraw(void* memory, std::size_t bytes);
  // The bytes that were allocated ahead and neither given to an allocation nor freed.
  std::size_t allocated_ahead();
  // Returns whether memory of this size was ever freed. Forgets sizes that nothing is kept of, once there are
  // thousands.
  bool was_freed(std::size_t bytes);
  // Gives all that is kept or expected back to the source; returns its bytes.
  std::size_t release();
  // The bytes that are kept now, with their pages.
  std::size_t bytes();

 private:
  struct Block {
    void* memory;
    std::size_t bytes;
    std::size_t resident;  // bytes from its start that have their pages
    std::uint64_t since;   // the number of allocations when it was freed
  };
  using Blocks = std::list<Block>;
  struct Size {
    bool was_freed = false;               // at any time
    bool recurs = false;                  // it was allocated after that
    std::vector<Blocks::iterator> kept;   // of this size, the latest last
    std::vector<Blocks::iterator> empty;  // the same, without pages
    std::vector<void*> expected;          // of this size, allocated ahead
  };

  void* take(std::size_t bytes, Blocks& superfluous);
  void* taken_from(std::vector<Blocks::iterator>& of_size, Blocks& all);
  void add(void* memory, std::size_t bytes);
  void note_use(void* memory, std::size_t bytes);
  void make_room(std::size_t bytes, Blocks& superfluous);
  void shrink_oldest(std::size_t by, Blocks& superfluous);
  void keep_empty(Blocks emptied);
  template <typename Condition>
  void take_oldest_ranges(const Condition& go, Blocks& to);
  void forget_sizes();
  void give_back(const Blocks& blocks);
  std::atomic<std::uint16_t>& count_of(const void* memory);

  c10::Allocator& source_;
  Mutex mutex_;
  std::unordered_map<void*, std::size_t> used_;
  std::unordered_map<std::size_t, Size> sizes_;
  Blocks kept_, empty_;  // the oldest first
  // Bytes: in use (those allocated ahead, too), allocated ahead, kept, kept without pages, and the most that
  // was in use at once.
  std::size_t used_bytes_ = 0, ahead_bytes_ = 0, kept_bytes_ = 0, empty_bytes_ = 0, most_used_ = 0;
  std::uint64_t allocations_ = 0;
  // Counts what is in use by a hash of its address, so that free() knows most memory of others without the
  // lock.
  std::array<std::atomic<std::uint16_t>, 4096> counts_{};
};

}  // namespace rekindle::device
