#include "kernels/cpu/vector.h"

#include <cmath>
#include <random>

#include "tests/kernels/tensors.h"

namespace cpu = rekindle::kernels::cpu;

namespace {

template <typename T>
void check_widen() {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const T value(static_cast<std::uint16_t>(bits), T::from_bits());
    const float expected = static_cast<float>(value);
    const float actual = cpu::widen(value);
    const bool both_nan = std::isnan(expected) && std::isnan(actual);
    if (!both_nan && cpu::bits_of(expected) != cpu::bits_of(actual)) ++wrong;
  }
  CHECK(wrong == 0);
}

template <typename T>
void check_narrow() {
  std::mt19937 random(1);
  int wrong = 0;
  const auto check = [&](std::uint32_t bits) {
    const float value = cpu::float_of(bits);
    const T expected(value);
    const T actual = cpu::narrow<T>(value);
    if (std::isnan(value) ? !std::isnan(static_cast<float>(actual)) : expected.x != actual.x) ++wrong;
  };
  for (int i = 0; i < 2000000; ++i) check(random());
  // Every value of T, the ties between neighbours, and what lies beside both.
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = static_cast<float>(T(static_cast<std::uint16_t>(bits), T::from_bits()));
    for (const std::uint32_t tie : {0u, 0x1000u, 0x8000u}) {
      for (int beside = -1; beside <= 1; ++beside) check((cpu::bits_of(value) | tie) + beside);
    }
  }
  CHECK(wrong == 0);
}

template <typename T>
double largest_exp_error(T from, T to) {
  double largest = 0;
  for (int i = 0; i <= 200000; ++i) {
    const T x = from + (to - from) * static_cast<T>(i) / 200000;
    const long double exact = std::exp(static_cast<long double>(x));
    largest = std::max(largest, static_cast<double>(std::abs(cpu::exp(x) - exact) / exact));
  }
  return largest;
}

}  // namespace

TEST_CASE("16-bit conversions are c10's", "[kernels]") {
  check_widen<c10::BFloat16>();
  check_widen<c10::Half>();
  check_narrow<c10::BFloat16>();
  check_narrow<c10::Half>();
}

TEST_CASE("exp is within a unit in the last place, and right at the ends", "[kernels]") {
  CHECK(largest_exp_error<float>(-87.3f, 88.3f) < 1.2e-7);
  CHECK(largest_exp_error<double>(-708.3, 709.4) < 2.3e-16);
  CHECK(cpu::exp(-INFINITY) == 0.0f);
  CHECK(cpu::exp(-200.0f) == 0.0f);
  CHECK(cpu::exp(0.0f) == 1.0f);
  CHECK(cpu::exp(89.0f) == INFINITY);
  CHECK(cpu::exp(INFINITY) == INFINITY);
  CHECK(std::isnan(cpu::exp(NAN)));
  CHECK(cpu::exp(-800.0) == 0.0);
  CHECK(cpu::exp(710.0) == std::numeric_limits<double>::infinity());
  CHECK(std::isnan(cpu::exp(std::nan(""))));
}
