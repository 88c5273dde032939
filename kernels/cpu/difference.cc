#include "kernels/difference.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <mutex>

#include "kernels/backends.h"

namespace rekindle::kernels::cpu {
namespace {

constexpr std::size_t kExponents = 2047;  // of finite doubles; 0 is that of zeros

constexpr std::int64_t kGrain = 1 << 18;  // elements

// By the exponents of magnitudes; denormal doubles, which no other dtype has, count as the smallest normal
// ones.
struct Tally {
  std::array<std::int64_t, kExponents> counts{};
  std::array<double, kExponents> largest{};
  double squares_of_difference = 0;
  double squares = 0;
  bool is_like = true;
};

double magnitude(double x) { return std::abs(x); }
double magnitude(const c10::complex<double>& x) { return std::hypot(x.real(), x.imag()); }

template <typename T>
auto widen(T x) {
  return static_cast<double>(x);
}
template <typename T>
auto widen(c10::complex<T> x) {
  return static_cast<c10::complex<double>>(x);
}

bool is_nan(double x) { return std::isnan(x); }
bool is_nan(const c10::complex<double>& x) { return std::isnan(x.real()) || std::isnan(x.imag()); }

template <typename T>
void count(const T* ours, const T* theirs, std::int64_t begin, std::int64_t end, Tally& tally) {
  for (std::int64_t i = begin; i < end; ++i) {
    const auto a = widen(ours[i]);
    const auto b = widen(theirs[i]);
    const double scale = magnitude(b);
    const double distance = magnitude(a - b);
    if (!std::isfinite(distance)) {  // so is one of them, or both are near the largest double
      tally.is_like = tally.is_like && (a == b || (is_nan(a) && is_nan(b)));
      continue;
    }
    const std::uint64_t exponent = std::bit_cast<std::uint64_t>(scale) >> 52;
    const std::uint64_t at = exponent == 0 && scale != 0 ? 1 : exponent;
    ++tally.counts[at];
    tally.largest[at] = std::max(tally.largest[at], distance);
    tally.squares_of_difference += distance * distance;
    tally.squares += scale * scale;
  }
}

void add(Tally& tally, const Tally& other) {
  for (std::size_t i = 0; i < kExponents; ++i) {
    tally.counts[i] += other.counts[i];
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
        at::parallel_for(0, ours.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
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
    if (tally.counts[exponent] == 0) continue;
    const double above = exponent == 0 ? 0 : std::ldexp(1.0, static_cast<int>(exponent) - 1023);
    found.octaves.push_back({above, tally.counts[exponent], tally.largest[exponent]});
  }
  return found;
}

}  // namespace rekindle::kernels::cpu
