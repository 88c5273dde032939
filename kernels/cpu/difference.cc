#include "kernels/difference.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <numeric>

#include "kernels/backends.h"
#include "kernels/cpu/vector.h"

namespace rekindle::kernels::cpu {
namespace {

constexpr std::size_t kExponents = 2047;  // of finite doubles; 0 is that of zeros

constexpr std::int64_t kDifferenceGrain = 1 << 18;  // elements
constexpr std::int64_t kDifferenceBlock = 1024;     // elements whose distances a cache holds
constexpr std::size_t kLanes = 4;  // counters of an exponent, so that no count waits for the one before

// By the exponents of magnitudes; denormal doubles, which no other dtype has, count as the smallest normal
// ones.
struct Tally {
  std::array<std::array<std::int64_t, kLanes>, kExponents> counts{};
  std::array<double, kExponents> largest{};
  double squares_of_difference = 0;
  double squares = 0;
  bool is_like = true;
};

struct Block {
  std::array<double, kDifferenceBlock> distances;
  std::array<std::uint16_t, kDifferenceBlock> exponents;
};

struct Squares {
  double of_difference = 0;
  double of_theirs = 0;
};

double magnitude(double x) { return std::abs(x); }
double magnitude(const c10::complex<double>& x) { return std::hypot(x.real(), x.imag()); }

template <typename T>
auto in_double(T x) {
  return static_cast<double>(x);
}
template <typename T>
auto in_double(c10::complex<T> x) {
  return static_cast<c10::complex<double>>(x);
}

bool is_nan(double x) { return std::isnan(x); }
bool is_nan(const c10::complex<double>& x) { return std::isnan(x.real()) || std::isnan(x.imag()); }

REKINDLE_INLINE std::uint64_t exponent_of(double magnitude) {
  const std::uint64_t bits = __builtin_bit_cast(std::uint64_t, magnitude);
  return std::max<std::uint64_t>(bits >> 52, bits != 0 ? 1 : 0);
}

template <typename T>
void count_each(const T* ours, const T* theirs, std::int64_t size, Tally& tally) {
  for (std::int64_t i = 0; i < size; ++i) {
    const auto a = in_double(ours[i]);
    const auto b = in_double(theirs[i]);
    const double scale = magnitude(b);
    const double distance = magnitude(a - b);
    if (!std::isfinite(distance)) {  // so is one of them, or both are near the largest double
      tally.is_like = tally.is_like && (a == b || (is_nan(a) && is_nan(b)));
      continue;
    }
    const std::uint64_t at = exponent_of(scale);
    ++tally.counts[at][0];
    tally.largest[at] = std::max(tally.largest[at], distance);
    tally.squares_of_difference += distance * distance;
    tally.squares += scale * scale;
  }
}

// The squares are not finite if an element is not, or is too large for its square.
template <typename T>
REKINDLE_CPU_CLONES Squares measure(const T* ours, const T* theirs, std::int64_t size, Block& block) {
  double of_difference = 0;
  double of_theirs = 0;
#pragma omp simd reduction(+ : of_difference, of_theirs)
  for (std::int64_t i = 0; i < size; ++i) {
    const double b = widen(theirs[i]);
    const double distance = std::abs(widen(ours[i]) - b);
    block.distances[i] = distance;
    block.exponents[i] = static_cast<std::uint16_t>(exponent_of(std::abs(b)));
    of_difference += distance * distance;
    of_theirs += b * b;
  }
  return {of_difference, of_theirs};
}

void count_block(const Block& block, std::int64_t size, Tally& tally) {
  for (std::int64_t i = 0; i < size; ++i) {
    const std::uint16_t at = block.exponents[i];
    ++tally.counts[at][i % kLanes];
    if (block.distances[i] > tally.largest[at]) tally.largest[at] = block.distances[i];  // seldom
  }
}

template <typename T>
void count(const T* ours, const T* theirs, std::int64_t begin, std::int64_t end, Tally& tally) {
  if constexpr (c10::is_complex<T>::value) {
    count_each(ours + begin, theirs + begin, end - begin, tally);
  } else {
    Block block;
    for (std::int64_t at = begin; at < end; at += kDifferenceBlock) {
      const std::int64_t size = std::min(kDifferenceBlock, end - at);
      const Squares squares = measure(ours + at, theirs + at, size, block);
      if (std::isfinite(squares.of_difference) && std::isfinite(squares.of_theirs)) {
        count_block(block, size, tally);
        tally.squares_of_difference += squares.of_difference;
        tally.squares += squares.of_theirs;
      } else {
        count_each(ours + at, theirs + at, size, tally);
      }
    }
  }
}

void add(Tally& tally, const Tally& other) {
  for (std::size_t i = 0; i < kExponents; ++i) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) tally.counts[i][lane] += other.counts[i][lane];
    tally.largest[i] = std::max(tally.largest[i], other.largest[i]);
  }
  tally.squares_of_difference += other.squares_of_difference;
  tally.squares += other.squares;
  tally.is_like = tally.is_like && other.is_like;
}

}  // namespace

Difference difference(const at::Tensor& ours, const at::Tensor& theirs) {
  Tally tally;
  std::mutex mutex;
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES_AND2(
      at::kHalf, at::kBFloat16, ours.scalar_type(), "difference", [&] {
        const auto* const a = ours.const_data_ptr<scalar_t>();
        const auto* const b = theirs.const_data_ptr<scalar_t>();
        at::parallel_for(0, ours.numel(), kDifferenceGrain, [&](std::int64_t begin, std::int64_t end) {
          Tally part;
          count(a, b, begin, end, part);
          const std::lock_guard lock(mutex);
          add(tally, part);
        });
      });
  Difference found;
  found.norm = std::sqrt(tally.squares_of_difference);
  found.scale = std::sqrt(tally.squares);
  found.is_like = tally.is_like;
  for (std::size_t exponent = 0; exponent < kExponents; ++exponent) {
    const auto& lanes = tally.counts[exponent];
    const std::int64_t elements = std::accumulate(lanes.begin(), lanes.end(), std::int64_t{0});
    if (elements == 0) continue;
    const double above = exponent == 0 ? 0 : std::ldexp(1.0, static_cast<int>(exponent) - 1023);
    found.octaves.push_back({above, elements, tally.largest[exponent]});
  }
  return found;
}

}  // namespace rekindle::kernels::cpu
