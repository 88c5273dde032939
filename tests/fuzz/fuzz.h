// What the fuzz targets share: the input as text, and checks that stop the fuzzer.
//
// A target must accept any bytes: it may refuse them, and what it accepts must hold the target's invariants.
// Crashes, hangs, leaks and undefined behaviour are found by the sanitizers it is built with.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace rekindle::fuzz {

inline std::string_view view(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Stops the fuzzer, which then keeps the input as an artifact.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "invariant broken: %s\n", what);
  std::abort();
}

inline void require_equal(std::string_view a, std::string_view b, const char* what) {
  if (a == b) return;
  std::fprintf(stderr, "first:\n%.*s\nsecond:\n%.*s\n", static_cast<int>(a.size()), a.data(),
               static_cast<int>(b.size()), b.data());
  require(false, what);
}

}  // namespace rekindle::fuzz
