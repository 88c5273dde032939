#include "kernels/summary.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <mutex>
#include <vector>

#include "kernels/backends.h"
#include "kernels/cpu/vector.h"

namespace rekindle::kernels::cpu {
namespace {

constexpr std::int64_t kChunk =
    1 << 14;                         // elements whose moments are added in one order, whatever the threads
constexpr std::int64_t kFewest = 4;  // chunks that are worth a thread
constexpr std::int64_t kSummaryBlock = 1024;  // elements that a cache holds
constexpr std::size_t kLanes = 4;             // counters of a key, so that no count waits for the one before
constexpr std::size_t kKeys = 2 * kPowers;    // a power, and whether it is that of a negative number
constexpr std::uint32_t kInfinity = 0x7f800000u, kSign = 0x80000000u;
constexpr float kFloatInfinity = std::numeric_limits<float>::infinity();

struct Moments {
  std::int64_t finite = 0;
  double mean = 0, deviations = 0, squares = 0;
};

using Counters = std::array<std::array<std::uint32_t, kKeys>, kLanes>;

struct Tally {
  std::array<std::int64_t, kKeys> counts{};  // zeros included, as of the lowest power
  std::int64_t nans = 0, infs = 0;
  std::int64_t zeros = 0, negative_zeros = 0;  // `zeros` has both
  float low = kFloatInfinity, high = -kFloatInfinity;
};

// Sums are of x - shift. The shift is one of the elements, so that these are no further from each other than
// they are from it, and double precision has twice the digits that cancel.
struct Scan {
  double sum = 0, squares = 0;
  std::int64_t zeros = 0, negative_zeros = 0;
  std::uint32_t largest = 0;  // bits of the largest magnitude; NaNs are above infinity
  float low = kFloatInfinity, high = -kFloatInfinity;
};

// Of the bits of a finite float32. Zeros and denormal numbers, whose exponent is that of zeros, have the
// lowest power.
REKINDLE_INLINE std::uint16_t key_of(std::uint32_t bits) {
  constexpr std::int32_t kBias = 127;
  const std::int32_t power = static_cast<std::int32_t>(bits >> 23 & 0xff) - kBias;
  const std::int32_t low = power < kLowestPower ? kLowestPower : power;
  const std::int32_t bounded = low > kHighestPower ? kHighestPower : low;
  return static_cast<std::uint16_t>((bounded - kLowestPower) |
                                    static_cast<std::int32_t>(bits >> 31) * kPowers);
}

template <typename T>
REKINDLE_CPU_CLONES Scan scan(const T* x, std::int64_t size, double shift, std::uint16_t* keys) {
  double sum = 0, squares = 0;
  std::int32_t zeros = 0, negative_zeros = 0;
  std::uint32_t largest = 0;
  float low = kFloatInfinity, high = -kFloatInfinity;
#pragma omp simd reduction(+ : sum, squares, zeros, negative_zeros) reduction(max : largest, high) reduction(min : low)
  for (std::int64_t i = 0; i < size; ++i) {
    const float value = widen(x[i]);
    const std::uint32_t bits = bits_of(value), magnitude = bits & ~kSign;
    keys[i] = key_of(bits);
    const double shifted = static_cast<double>(value) - shift;
    sum += shifted;
    squares += shifted * shifted;
    zeros += magnitude == 0 ? 1 : 0;
    negative_zeros += bits == kSign ? 1 : 0;
    largest = magnitude > largest ? magnitude : largest;
    low = value < low ? value : low;
    high = value > high ? value : high;
  }
  return {sum, squares, zeros, negative_zeros, largest, low, high};
}

// Chan, Golub and LeVeque: Updating formulae and a pairwise algorithm for computing sample variances, 1979.
void add(Moments& all, const Moments& part) {
  if (part.finite == 0) return;
  const double ours = static_cast<double>(all.finite), theirs = static_cast<double>(part.finite);
  const double apart = part.mean - all.mean;
  all.deviations += part.deviations + apart * apart * ours * theirs / (ours + theirs);
  all.mean += apart * theirs / (ours + theirs);
  all.squares += part.squares;
  all.finite += part.finite;
}

void add(Tally& all, const Tally& part) {
  for (std::size_t key = 0; key < kKeys; ++key) all.counts[key] += part.counts[key];
  all.nans += part.nans;
  all.infs += part.infs;
  all.zeros += part.zeros;
  all.negative_zeros += part.negative_zeros;
  all.low = std::min(all.low, part.low);
  all.high = std::max(all.high, part.high);
}

void count_keys(const std::uint16_t* keys, std::size_t size, Counters& counters) {
  std::size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) ++counters[lane][keys[i + lane]];
  }
  for (; i < size; ++i) ++counters[0][keys[i]];
}

template <typename T>
void count_block(const T* x, std::int64_t size, Moments& moments, Tally& tally, Counters& counters);

// Counts NaNs and infinities, and gives the others to count_block.
template <typename T>
void count_finite(const T* x, std::int64_t size, Moments& moments, Tally& tally, Counters& counters) {
  std::array<float, kSummaryBlock> finite;
  std::int64_t kept = 0;
  for (std::int64_t i = 0; i < size; ++i) {
    const float value = widen(x[i]);
    const std::uint32_t magnitude = bits_of(value) & ~kSign;
    tally.nans += magnitude > kInfinity ? 1 : 0;
    tally.infs += magnitude == kInfinity ? 1 : 0;
    if (magnitude < kInfinity) finite[kept++] = value;
  }
  if (kept > 0) count_block(finite.data(), kept, moments, tally, counters);
}

template <typename T>
void count_block(const T* x, std::int64_t size, Moments& moments, Tally& tally, Counters& counters) {
  std::array<std::uint16_t, kSummaryBlock> keys;
  const double shift = widen(x[0]);
  const Scan found = scan(x, size, shift, keys.data());
  if (found.largest >= kInfinity) return count_finite(x, size, moments, tally, counters);
  count_keys(keys.data(), static_cast<std::size_t>(size), counters);
  tally.zeros += found.zeros;
  tally.negative_zeros += found.negative_zeros;
  tally.low = std::min(tally.low, found.low);
  tally.high = std::max(tally.high, found.high);
  const double n = static_cast<double>(size), off = found.sum / n;
  add(moments, {size, shift + off, std::max(found.squares - off * found.sum, 0.0),
                found.squares + shift * (2 * found.sum + n * shift)});
}

template <typename T>
Moments count_chunk(const T* x, std::int64_t size, Tally& tally) {
  Moments moments;
  Counters counters{};
  for (std::int64_t at = 0; at < size; at += kSummaryBlock)
    count_block(x + at, std::min(kSummaryBlock, size - at), moments, tally, counters);
  for (const auto& lane : counters) {
    for (std::size_t key = 0; key < kKeys; ++key) tally.counts[key] += lane[key];
  }
  return moments;
}

void add_powers(const Tally& tally, Summary& found) {
  std::copy_n(tally.counts.begin(), kPowers, found.positive.begin());
  std::copy_n(tally.counts.begin() + kPowers, kPowers, found.negative.begin());
  found.positive[0] -= tally.zeros - tally.negative_zeros;
  found.negative[0] -= tally.negative_zeros;
}

Summary joined(const std::vector<Moments>& parts, const Tally& tally) {
  Moments moments;
  for (const Moments& part : parts) add(moments, part);
  Summary found;
  found.finite = moments.finite;
  found.nans = tally.nans;
  found.infs = tally.infs;
  found.zeros = tally.zeros;
  found.min = tally.low;
  found.max = tally.high;
  found.mean = moments.mean;
  found.deviations = moments.deviations;
  found.squares = moments.squares;
  add_powers(tally, found);
  return found;
}

template <typename T>
Summary summary_of(const T* x, std::int64_t size) {
  const std::int64_t chunks = (size + kChunk - 1) / kChunk;
  std::vector<Moments> parts(static_cast<std::size_t>(chunks));
  Tally tally;
  std::mutex mutex;
  at::parallel_for(0, chunks, kFewest, [&](std::int64_t begin, std::int64_t end) {
    Tally part;
    for (std::int64_t chunk = begin; chunk < end; ++chunk) {
      const std::int64_t at = chunk * kChunk;
      parts[static_cast<std::size_t>(chunk)] = count_chunk(x + at, std::min(kChunk, size - at), part);
    }
    const std::lock_guard lock(mutex);
    add(tally, part);
  });
  return joined(parts, tally);
}

}  // namespace

Summary summary(const at::Tensor& x) {
  const auto of = [&]<typename T>(const T* elements) { return summary_of(elements, x.numel()); };
  return AT_DISPATCH_SWITCH(x.scalar_type(), "summary", AT_DISPATCH_CASE(at::kFloat, [&] {
                              return of(x.const_data_ptr<scalar_t>());
                            }) AT_DISPATCH_CASE(at::kBFloat16, [&] {
                              return of(x.const_data_ptr<scalar_t>());
                            }) AT_DISPATCH_CASE(at::kHalf, [&] { return of(x.const_data_ptr<scalar_t>()); }));
}

}  // namespace rekindle::kernels::cpu
