// Vector clocks of the test device's streams (Mattern, 1989), and who touched which bytes last.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "tests/device/test_device.h"

namespace rekindle::testing::device {

inline constexpr std::size_t kAllStreams = std::tuple_size_v<decltype(Counts::kernels_on)>;

// Per stream, how many of its kernels are known to be done.
class Clock {
 public:
  std::uint64_t& operator[](std::size_t stream) { return times_[stream]; }
  std::uint64_t operator[](std::size_t stream) const { return times_[stream]; }
  void join(const Clock& other);

 private:
  std::array<std::uint64_t, kAllStreams> times_{};
};

// A kernel, as it is remembered.
struct Launch {
  std::size_t stream = 0;  // among all of all devices
  std::uint64_t time = 0;  // of that stream
  std::string name;
};

// The accesses of kernels to memory. Not thread-safe.
class Accesses {
 public:
  // Both throw c10::Error where an earlier access is not ordered before `launch`, whose stream knows `clock`.
  void read(std::uintptr_t begin, std::uintptr_t end, const Launch& launch, const Clock& clock);
  void write(std::uintptr_t begin, std::uintptr_t end, const Launch& launch, const Clock& clock);

 private:
  struct Range {
    std::uintptr_t end = 0;
    Launch writer;                          // time 0: none
    std::map<std::size_t, Launch> readers;  // since then, the last of each stream
  };
  using Ranges = std::map<std::uintptr_t, Range>;  // by their beginnings; no two overlap

  // The first of the ranges that make up [begin, end) exactly.
  Ranges::iterator cut(std::uintptr_t begin, std::uintptr_t end);
  void split(std::uintptr_t at);

  Ranges ranges_;
};

}  // namespace rekindle::testing::device
