// What is freed and allocated again is kept, and never more pages than were in use at once.
#include "device/kept_memory.h"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <new>
#include <set>
#include <thread>

#include "device/cpu_allocator.h"

namespace rekindle::device {
namespace {

constexpr std::size_t kBytes = 16 << 20;

// A heap that counts what it has given, and gives no more than `limit` bytes.
class Heap final : public c10::Allocator {
 public:
  static inline std::set<void*> given;
  static inline std::size_t limit = 0;

  Heap() {
    given.clear();
    limit = 100 * kBytes;
  }
  c10::DataPtr allocate(std::size_t bytes) override {
    if (given.size() * kBytes + bytes > limit) throw std::bad_alloc();
    void* const memory = std::malloc(bytes);
    given.insert(memory);
    return {memory, memory, &give_back, at::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  static void give_back(void* memory) {
    REQUIRE(given.erase(memory) == 1);
    std::free(memory);
  }
};

// A byte of a page that lies in a block as a whole.
unsigned char& inside(void* memory) { return static_cast<unsigned char*>(memory)[kBytes / 2]; }

TEST_CASE("memory that a second step allocates again is there in the third", "[session][memory]") {
  Heap heap;
  KeptMemory kept(heap);
  void* const before = kept.allocate(kBytes);
  for (int step = 0; step < 2; ++step) {
    inside(before) = 7;
    CHECK(kept.free(before));
    CHECK(kept.bytes() == (step == 0 ? 0 : kBytes));  // nothing was known to come again in the first
    CHECK(kept.allocate(kBytes) == before);
    CHECK(inside(before) == (step == 0 ? 0 : 7));  // its pages were the system's, its addresses were not
  }
  CHECK(Heap::given == std::set<void*>{before});
  CHECK(kept.free(before));
  CHECK(kept.release() == kBytes);
  CHECK(Heap::given.empty());
}

TEST_CASE("memory of others is left as it is", "[session][memory]") {
  Heap heap;
  KeptMemory kept(heap);
  int other = 0;
  CHECK_FALSE(kept.free(&other));
  void* const memory = kept.allocate(kBytes);
  CHECK_FALSE(kept.free(static_cast<char*>(memory) + 1));
  CHECK(kept.free(memory));
  CHECK_FALSE(kept.free(memory));
}

TEST_CASE("pages that are kept go before a process needs more than it ever has", "[session][memory]") {
  Heap heap;
  KeptMemory kept(heap);
  for (int step = 0; step < 2; ++step) kept.free(kept.allocate(kBytes));
  REQUIRE(kept.bytes() == kBytes);
  void* const memory = *Heap::given.begin();
  inside(memory) = 7;
  static_cast<unsigned char*>(memory)[0] = 7;
  void* const larger = kept.allocate(kBytes + 1);
  CHECK(kept.bytes() == KeptMemory::slack_of(kBytes + 1));  // as many pages as may stay
  CHECK(static_cast<unsigned char*>(memory)[0] == 7);
  CHECK(inside(memory) == 0);
  CHECK(Heap::given.size() == 2);
  CHECK(kept.allocate(kBytes) == memory);
  kept.free(memory);
  kept.free(larger);
}

TEST_CASE("empty ranges are no larger than what was in use at once", "[session][memory]") {
  Heap heap;
  KeptMemory kept(heap);
  for (std::size_t i = 0; i < 50; ++i) kept.free(kept.allocate(kBytes + i));
  CHECK(Heap::given.size() == 1);
}

TEST_CASE("what nobody has taken for long goes back", "[session][memory]") {
  Heap heap;
  KeptMemory kept(heap);
  void* const first = kept.allocate(kBytes);
  void* const second = kept.allocate(kBytes + 1);
  kept.free(first);
  void* const again = kept.allocate(kBytes);
  kept.free(again);
  kept.free(second);
  REQUIRE(Heap::given == std::set<void*>{again, second});
  for (int i = 0; i <= 8192; ++i) kept.free(kept.allocate(kBytes + 2 + static_cast<std::size_t>(i)));
  CHECK(Heap::given.size() == 1);  // the last one
  CHECK(kept.bytes() == 0);
}

TEST_CASE("where memory is out, what is kept is given up for it", "[session][memory]") {
  Heap heap;
  KeptMemory kept(heap);
  void* const others[] = {kept.allocate(kBytes), kept.allocate(kBytes), kept.allocate(kBytes)};
  for (void* const memory : others) kept.free(memory);
  void* const again = kept.allocate(kBytes);
  kept.free(again);
  REQUIRE(Heap::given.size() == 3);
  Heap::limit = kBytes + 1;
  void* const other = kept.allocate(kBytes + 1);  // within what was in use, so nothing goes for its sake
  CHECK(Heap::given == std::set<void*>{other});
  CHECK_THROWS_AS(kept.allocate(kBytes), std::bad_alloc);
  kept.free(other);
}

TEST_CASE("what is allocated ahead is given to one allocation, or withdrawn", "[session][memory]") {
  Heap heap;
  KeptMemory kept(heap);
  void* const ahead = kept.allocate_ahead(kBytes);
  void* const other = kept.allocate(kBytes);
  CHECK(other != ahead);  // nobody expects it yet
  kept.expect(ahead, kBytes);
  CHECK(kept.allocate(kBytes + 1) != ahead);
  CHECK(kept.allocate(kBytes) == ahead);
  kept.withdraw(ahead, kBytes);  // it is in use
  CHECK(Heap::given.contains(ahead));
  void* const unused = kept.allocate_ahead(kBytes);
  kept.expect(unused, kBytes);
  kept.withdraw(unused, kBytes);
  CHECK_FALSE(Heap::given.contains(unused));
  CHECK_FALSE(kept.was_freed(kBytes));
  CHECK(kept.free(ahead));
  CHECK(kept.was_freed(kBytes));
  Heap::limit = 0;
  CHECK(kept.allocate_ahead(kBytes) == nullptr);
}

TEST_CASE("what is allocated ahead counts as in use, and goes where memory is out", "[session][memory]") {
  Heap heap;
  KeptMemory kept(heap);
  for (int step = 0; step < 2; ++step) kept.free(kept.allocate(kBytes));
  REQUIRE(kept.bytes() == kBytes);
  void* const ahead = kept.allocate_ahead(kBytes + 1);
  kept.expect(ahead, kBytes + 1);
  CHECK(kept.allocate(kBytes + 2) != nullptr);
  CHECK(kept.bytes() == KeptMemory::slack_of(3 * kBytes));  // more than was ever in use otherwise
  Heap::limit = 2 * kBytes + 3;
  CHECK(kept.allocate(kBytes + 3) != nullptr);
  CHECK(kept.allocated_ahead() == 0);
  kept.withdraw(ahead, kBytes + 1);  // it is gone
}

TEST_CASE("tensors of the process get memory that others have freed", "[session][memory]") {
  CpuAllocator::install();
  const std::int64_t elements = (3 << 20) + 64;
  for (int step = 0; step < 2; ++step) at::zeros({elements});
  at::Tensor kept = at::ones({elements});
  const void* const memory = kept.const_data_ptr();
  std::thread([taken = std::move(kept)]() mutable { taken.reset(); }).join();
  at::Tensor next = at::zeros({elements});
  CHECK(next.const_data_ptr() == memory);
  CHECK_FALSE(next.any().item<bool>());
  next.resize_({2 * elements});  // its storage has an allocator
  CHECK(next.numel() == 2 * elements);
  CHECK(CpuAllocator::kept_bytes() >= elements * sizeof(float));
  CHECK(CpuAllocator::release() >= elements * sizeof(float));
  CHECK(CpuAllocator::release() == 0);
  CHECK(CpuAllocator::kept_bytes() == 0);
}

}  // namespace
}  // namespace rekindle::device
