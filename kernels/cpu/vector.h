// Plain loops that compilers vectorize, for several x86-64 instruction sets in one binary.
//
// A hot loop is a function marked REKINDLE_CPU_CLONES; everything it calls is inlined into it. Reductions say
// `#pragma omp simd reduction(...)`: that is what allows their sums to be reordered.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>
#include <limits>
#include <type_traits>

#define REKINDLE_INLINE [[gnu::always_inline]] inline

#if defined(__x86_64__) && !defined(REKINDLE_CPU_BASELINE_ONLY)
#define REKINDLE_CPU_CLONES \
  __attribute__((flatten, target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define REKINDLE_CPU_CLONES
#endif

namespace rekindle::kernels::cpu {

// The type in which values of type T are computed and summed.
template <typename T>
using Accumulator = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename T>
inline constexpr bool kIsReduced = sizeof(T) == 2;

REKINDLE_INLINE std::uint32_t bits_of(float value) { return __builtin_bit_cast(std::uint32_t, value); }
REKINDLE_INLINE float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

// The 16-bit conversions are c10's, value for value, but written as
// selections so that loops over them vectorize.
REKINDLE_INLINE float widen(float value) { return value; }
REKINDLE_INLINE double widen(double value) { return value; }
REKINDLE_INLINE float widen(c10::BFloat16 value) { return float_of(std::uint32_t{value.x} << 16); }
REKINDLE_INLINE float widen(c10::Half value) {
  constexpr std::uint32_t kExponent = 0x7c00u << 13;
  constexpr std::uint32_t kSmallest = 113u << 23;  // 2^-14
  const std::uint32_t shifted = (value.x & 0x7fffu) << 13;
  const std::uint32_t normal = shifted + (112u << 23);
  const std::uint32_t subnormal = bits_of(float_of(shifted + kSmallest) - float_of(kSmallest));
  const std::uint32_t not_finite = shifted | 0x7f800000u;
  const std::uint32_t exponent = shifted & kExponent;
  const std::uint32_t finite = exponent == 0 ? subnormal : normal;
  const std::uint32_t magnitude = exponent == kExponent ? not_finite : finite;
  return float_of(magnitude | (std::uint32_t{value.x} & 0x8000u) << 16);
}

template <typename T>
REKINDLE_INLINE T narrow(Accumulator<T> value) {
  return value;
}
template <>
REKINDLE_INLINE c10::BFloat16 narrow(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return {static_cast<std::uint16_t>(is_nan ? 0x7fc0u : rounded), c10::BFloat16::from_bits()};
}
template <>
REKINDLE_INLINE c10::Half narrow(float value) {
  constexpr std::uint32_t kMagic = 126u << 23;  // 0.5: adding it leaves a subnormal's bits at the end
  const std::uint32_t magnitude = bits_of(value) & 0x7fffffffu;
  const std::uint32_t subnormal = bits_of(float_of(magnitude) + float_of(kMagic)) - kMagic;
  const std::uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const std::uint32_t not_finite = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  const std::uint32_t finite = magnitude < (113u << 23) ? subnormal : normal;
  const std::uint32_t half = magnitude >= (143u << 23) ? not_finite : finite;
  return {static_cast<std::uint16_t>(half | (bits_of(value) >> 16 & 0x8000u)), c10::Half::from_bits()};
}

template <typename T>
struct ExpConstants;

template <>
struct ExpConstants<float> {
  using Bits = std::int32_t;
  static constexpr int kDegree = 7;
  static constexpr int kMantissaBits = 23;
  static constexpr int kExponentBias = 127;
  static constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  static constexpr float kUnderflow = -87.33654f;
  static constexpr float kOverflow = 88.37626f;
};

template <>
struct ExpConstants<double> {
  using Bits = std::int64_t;
  static constexpr int kDegree = 13;
  static constexpr int kMantissaBits = 52;
  static constexpr int kExponentBias = 1023;
  static constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52
  static constexpr double kUnderflow = -708.3964185322641;
  static constexpr double kOverflow = 709.4361393031;
};

constexpr double factorial(int n) { return n < 2 ? 1.0 : n * factorial(n - 1); }

// The Taylor polynomial of exp from term kTerm on, divided by r^kTerm.
template <int kTerm, typename T>
REKINDLE_INLINE T exp_polynomial(T r) {
  constexpr T kCoefficient = static_cast<T>(1.0 / factorial(kTerm));
  if constexpr (kTerm == ExpConstants<T>::kDegree) {
    return kCoefficient;
  } else {
    return kCoefficient + r * exp_polynomial<kTerm + 1>(r);
  }
}

// e^x without a branch or a call, within 1 ulp; 0 where the result would be subnormal, inf in the uppermost
// half octave of the type, nan for nan.
template <typename T>
REKINDLE_INLINE T exp(T x) {
  using Constants = ExpConstants<T>;
  using Bits = typename Constants::Bits;
  constexpr T kLog2e = static_cast<T>(1.4426950408889634);
  // ln 2 in two parts; the product of the first with any exponent is exact.
  constexpr T kLn2High = static_cast<T>(0.693145751953125);
  constexpr T kLn2Low = static_cast<T>(1.42860682030941723212e-6);
  const T rounded = x * kLog2e + Constants::kRound;
  const T n = rounded - Constants::kRound;
  const T r = (x - n * kLn2High) - n * kLn2Low;
  const auto bits = static_cast<std::make_unsigned_t<Bits>>(__builtin_bit_cast(Bits, rounded));
  const auto scale = (bits + Constants::kExponentBias) << Constants::kMantissaBits;
  // The small terms first: only the last addition rounds by as much as half a unit.
  const T power = T(1) + (r + r * r * exp_polynomial<2>(r));
  const T y = power * __builtin_bit_cast(T, static_cast<Bits>(scale));
  const T low = x < Constants::kUnderflow ? T(0) : y;
  return x > Constants::kOverflow ? std::numeric_limits<T>::infinity() : low;
}

}  // namespace rekindle::kernels::cpu
