#include "session/plan/memory_planner.h"

#include <catch2/catch.hpp>
#include <random>

using rekindle::session::Buffer;
using rekindle::session::plan_memory;

namespace {

constexpr std::size_t kAlignment = 64;

}  // namespace

TEST_CASE("buffers that live at different times share memory", "[session][host]") {
  std::vector<Buffer> buffers{{100, 0, 1}, {100, 2, 3}, {100, 1, 2}};
  CHECK(plan_memory(buffers, kAlignment) == 2 * 128);
  CHECK(buffers[0].offset == buffers[1].offset);
  CHECK(buffers[2].offset != buffers[0].offset);
}

TEST_CASE("no buffers need no memory", "[session][host]") {
  std::vector<Buffer> none;
  CHECK(plan_memory(none, kAlignment) == 0);
}

TEST_CASE("buffers alive together never overlap, whatever their sizes", "[session][host]") {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    std::vector<Buffer> buffers(60);
    for (Buffer& buffer : buffers) {
      buffer.bytes = random() % 5000;
      buffer.first = static_cast<std::int32_t>(random() % 40);
      buffer.last = buffer.first + static_cast<std::int32_t>(random() % 10);
    }
    const std::size_t arena = plan_memory(buffers, kAlignment);
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      const Buffer& a = buffers[i];
      REQUIRE(a.offset % kAlignment == 0);
      REQUIRE(a.offset + a.bytes <= arena);
      for (std::size_t j = 0; j < i; ++j) {
        const Buffer& b = buffers[j];
        const bool together = a.first <= b.last && b.first <= a.last;
        if (together && a.bytes > 0 && b.bytes > 0) {
          REQUIRE((a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset));
        }
      }
    }
  }
}
