#include "src/graph/element.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace rekindle::graph {
namespace {

// A binary floating-point format of 16 bits: one sign, then the exponent, then the mantissa.
struct SmallFloat {
  int exponent_bits, mantissa_bits;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  std::uint32_t infinity() const { return ((1u << exponent_bits) - 1) << mantissa_bits; }

  std::uint16_t encode(double value) const {
    const std::uint32_t sign = std::signbit(value) ? 0x8000u : 0u;
    if (std::isnan(value)) return static_cast<std::uint16_t>(sign | infinity() | (1u << (mantissa_bits - 1)));
    const double magnitude = std::fabs(value);
    if (std::isinf(magnitude)) return static_cast<std::uint16_t>(sign | infinity());
    if (magnitude == 0) return static_cast<std::uint16_t>(sign);
    int exponent = 0;
    std::frexp(magnitude, &exponent);
    exponent = std::max(exponent - 1, 1 - bias());  // smaller ones are subnormal
    if (exponent > bias()) return static_cast<std::uint16_t>(sign | infinity());
    // The significand counts the hidden bit, which carries one into the
    // exponent field; so does rounding up to 2.
    const auto significand =
        static_cast<std::uint32_t>(std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent)));
    const std::uint32_t bits =
        (static_cast<std::uint32_t>(exponent + bias() - 1) << mantissa_bits) + significand;
    return static_cast<std::uint16_t>(sign | std::min(bits, infinity()));
  }

  double decode(std::uint16_t bits) const {
    const double sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
    const std::uint32_t magnitude = bits & 0x7fffu;
    const std::uint32_t mantissa = magnitude & ((1u << mantissa_bits) - 1);
    if (magnitude >= infinity()) {
      return mantissa != 0 ? std::copysign(std::numeric_limits<double>::quiet_NaN(), sign)
                           : sign * std::numeric_limits<double>::infinity();
    }
    const int exponent = static_cast<int>(magnitude >> mantissa_bits);
    const std::uint32_t significand = exponent == 0 ? mantissa : mantissa | (1u << mantissa_bits);
    return sign * std::ldexp(significand, std::max(exponent, 1) - bias() - mantissa_bits);
  }
};

constexpr SmallFloat kFloat16Format{5, 10};
constexpr SmallFloat kBFloat16Format{8, 7};

template <typename T>
T saturate(double value) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(value);
  } else {
    // Out of range, the cast itself would be undefined.
    if (std::isnan(value)) return 0;
    if (value <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
    if (value >= static_cast<double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
    return static_cast<T>(value);
  }
}

template <typename T>
T read(const ConstantTensor& constant, std::int64_t index) {
  T value;
  std::memcpy(&value, constant.bytes.data() + static_cast<std::size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void append(T value, std::string& bytes) {
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  bytes.append(raw, sizeof(T));
}

// Calls `visit` with a zero of the C++ type that holds an element; false for dtypes without one.
template <typename Visit>
bool with_native_type(DType dtype, Visit visit) {
  switch (dtype) {
    case DType::kFloat32:
      visit(float{});
      return true;
    case DType::kFloat64:
      visit(double{});
      return true;
    case DType::kUInt8:
      visit(std::uint8_t{});
      return true;
    case DType::kInt8:
      visit(std::int8_t{});
      return true;
    case DType::kUInt16:
      visit(std::uint16_t{});
      return true;
    case DType::kInt16:
      visit(std::int16_t{});
      return true;
    case DType::kInt32:
      visit(std::int32_t{});
      return true;
    case DType::kInt64:
      visit(std::int64_t{});
      return true;
    case DType::kUInt32:
      visit(std::uint32_t{});
      return true;
    case DType::kUInt64:
      visit(std::uint64_t{});
      return true;
    default:
      return false;
  }
}

}  // namespace

std::uint16_t float16_from_double(double value) { return kFloat16Format.encode(value); }
std::uint16_t bfloat16_from_double(double value) { return kBFloat16Format.encode(value); }
double double_from_float16(std::uint16_t bits) { return kFloat16Format.decode(bits); }
double double_from_bfloat16(std::uint16_t bits) { return kBFloat16Format.decode(bits); }

bool is_integral(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kUInt16:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kUInt32:
    case DType::kUInt64:
    case DType::kBool:
      return true;
    default:
      return false;
  }
}

bool is_real(DType dtype) {
  return is_integral(dtype) || dtype == DType::kFloat16 || dtype == DType::kBFloat16 ||
         dtype == DType::kFloat32 || dtype == DType::kFloat64;
}

double read_double(const ConstantTensor& constant, std::int64_t index) {
  if (constant.dtype == DType::kBool) return read<std::uint8_t>(constant, index) != 0 ? 1.0 : 0.0;
  if (constant.dtype == DType::kFloat16) return double_from_float16(read<std::uint16_t>(constant, index));
  if (constant.dtype == DType::kBFloat16) return double_from_bfloat16(read<std::uint16_t>(constant, index));
  double value = 0;
  [[maybe_unused]] const bool known = with_native_type(
      constant.dtype, [&](auto zero) { value = static_cast<double>(read<decltype(zero)>(constant, index)); });
  assert(known);
  return value;
}

std::int64_t read_int64(const ConstantTensor& constant, std::int64_t index) {
  if (constant.dtype == DType::kBool) return read<std::uint8_t>(constant, index) != 0 ? 1 : 0;
  assert(is_integral(constant.dtype));
  std::int64_t value = 0;
  with_native_type(constant.dtype, [&](auto zero) {
    if constexpr (std::is_integral_v<decltype(zero)>)
      value = static_cast<std::int64_t>(read<decltype(zero)>(constant, index));
  });
  return value;
}

void append_double(DType dtype, double value, std::string& bytes) {
  if (dtype == DType::kBool) return append(static_cast<std::uint8_t>(value != 0), bytes);
  if (dtype == DType::kFloat16) return append(float16_from_double(value), bytes);
  if (dtype == DType::kBFloat16) return append(bfloat16_from_double(value), bytes);
  [[maybe_unused]] const bool known =
      with_native_type(dtype, [&](auto zero) { append(saturate<decltype(zero)>(value), bytes); });
  assert(known);
}

void append_int64(DType dtype, std::int64_t value, std::string& bytes) {
  if (dtype == DType::kBool) return append(static_cast<std::uint8_t>(value != 0), bytes);
  assert(is_integral(dtype));
  with_native_type(dtype, [&](auto zero) {
    if constexpr (std::is_integral_v<decltype(zero)>) append(static_cast<decltype(zero)>(value), bytes);
  });
}

}  // namespace rekindle::graph
