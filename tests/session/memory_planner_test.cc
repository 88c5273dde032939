#include "session/plan/memory_planner.h"

#include <algorithm>
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

TEST_CASE("the arena of a step is hardly larger than what is alive at its fullest moment",
          "[session][host]") {
  // Layers save some buffers until their backward, and have others for themselves in both directions.
  double sum = 0;
  constexpr int kRounds = 40, kLayers = 30;
  for (int round = 0; round < kRounds; ++round) {
    std::mt19937 random(static_cast<unsigned>(round));
    std::vector<Buffer> buffers;
    const auto size = [&] { return std::size_t{64} << random() % 6; };
    for (std::int32_t layer = 0; layer < kLayers; ++layer) {
      const std::int32_t forward = 4 * layer, backward = 8 * kLayers - 4 - forward;
      for (std::int32_t i = 0; i < 4; ++i) {
        buffers.push_back({size(), forward + i, backward + static_cast<std::int32_t>(random() % 4)});
        buffers.push_back({size(), forward + i, forward + i + static_cast<std::int32_t>(random() % 3)});
        buffers.push_back({size(), backward + i, backward + i + static_cast<std::int32_t>(random() % 3)});
      }
    }
    std::vector<std::size_t> alive(8 * kLayers + 8);
    for (const Buffer& buffer : buffers) {
      for (std::int32_t at = buffer.first; at <= buffer.last; ++at)
        alive[static_cast<std::size_t>(at)] += buffer.bytes;
    }
    const auto largest = static_cast<double>(*std::max_element(alive.begin(), alive.end()));
    sum += static_cast<double>(plan_memory(buffers, kAlignment)) / largest;
  }
  INFO(sum / kRounds);
  CHECK(sum / kRounds < 1.0005);
}
