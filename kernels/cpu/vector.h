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

template <typename T>
REKINDLE_INLINE Accumulator<T> widen(T value) {
  return static_cast<Accumulator<T>>(value);
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
  static constexpr float kOverflow = 88.72283f;
};

template <>
struct ExpConstants<double> {
  using Bits = std::int64_t;
  static constexpr int kDegree = 13;
  static constexpr int kMantissaBits = 52;
  static constexpr int kExponentBias = 1023;
  static constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52
  static constexpr double kUnderflow = -708.3964185322641;
  static constexpr double kOverflow = 709.782712893384;
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

// e^x without a branch or a call, within 1 ulp; 0 where the result would be subnormal, nan for nan.
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
  const T y = exp_polynomial<0>(r) * __builtin_bit_cast(T, static_cast<Bits>(scale));
  const T low = x < Constants::kUnderflow ? T(0) : y;
  return x > Constants::kOverflow ? std::numeric_limits<T>::infinity() : low;
}

}  // namespace rekindle::kernels::cpu
