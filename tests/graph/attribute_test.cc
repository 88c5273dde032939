#include "src/graph/attribute.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "src/graph/element.h"

using namespace rekindle::graph;

TEST_CASE("attributes are equal by content and bit by bit", "[graph]") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(same_attribute(nan, nan));
  CHECK_FALSE(same_attribute(0.0, -0.0));
  CHECK_FALSE(same_attribute(1.0, std::int64_t{1}));
  CHECK(same_attribute(std::vector<double>{1, nan}, std::vector<double>{1, nan}));
  CHECK_FALSE(same_attribute(std::vector<double>{0.0}, std::vector<double>{-0.0}));
  CHECK(same_attribute(make_scalar_constant(DType::kFloat32, 2), make_scalar_constant(DType::kFloat32, 2)));
  CHECK_FALSE(
      same_attribute(make_scalar_constant(DType::kFloat32, 0), make_scalar_constant(DType::kInt32, 0)));
  CHECK_FALSE(same_attribute(make_int64_constant({1}, {1}), make_int64_constant({1}, {})));
}

TEST_CASE("byte_size refuses negative sizes, overflow and dtypes without a size", "[graph]") {
  CHECK(byte_size(DType::kFloat32, {2, 3}) == 24);
  CHECK(byte_size(DType::kFloat32, {}) == 4);
  CHECK(byte_size(DType::kFloat32, {0, 5}) == 0);
  CHECK_FALSE(byte_size(DType::kFloat32, {-1}));
  CHECK_FALSE(byte_size(DType::kFloat32, {std::int64_t{1} << 62}));
  CHECK_FALSE(byte_size(DType::kFloat32, {std::int64_t{1} << 40, std::int64_t{1} << 40, 0}));
  CHECK_FALSE(byte_size(DType::kString, {1}));
}

TEST_CASE("scalars are rounded to nearest, ties to even, and saturated", "[graph]") {
  const auto through = [](DType dtype, double value) {
    return scalar_value(*make_scalar_constant(dtype, value));
  };
  CHECK(through(DType::kFloat16, 65504) == 65504);
  CHECK(std::isinf(through(DType::kFloat16, 65520)));
  CHECK(through(DType::kFloat16, 65519) == 65504);
  CHECK(through(DType::kFloat16, 2049) == 2048);  // halfway, to even
  CHECK(through(DType::kFloat16, 2051) == 2052);
  CHECK(through(DType::kFloat16, std::ldexp(1, -24)) == std::ldexp(1, -24));  // the smallest subnormal
  CHECK(through(DType::kFloat16, std::ldexp(1, -25)) == 0);
  CHECK(through(DType::kFloat16, std::ldexp(1.5, -25)) == std::ldexp(1, -24));
  CHECK(std::signbit(through(DType::kFloat16, -0.0)));
  CHECK(std::isnan(through(DType::kBFloat16, std::nan(""))));
  CHECK(through(DType::kBFloat16, 257) == 256);
  CHECK(std::isinf(through(DType::kBFloat16, 3.4e38)));
  CHECK(through(DType::kInt8, 300) == 127);
  CHECK(through(DType::kInt64, 1e30) == 9223372036854775807.0);
  CHECK(through(DType::kUInt8, -1) == 0);
  CHECK(through(DType::kInt32, std::nan("")) == 0);
  CHECK(through(DType::kBool, 0.5) == 1);
}

TEST_CASE("every 16-bit float survives the way to double and back", "[graph]") {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const double a = double_from_float16(half), b = double_from_bfloat16(half);
    if (!std::isnan(a) && float16_from_double(a) != half) FAIL("float16 " << bits);
    if (!std::isnan(b) && bfloat16_from_double(b) != half) FAIL("bfloat16 " << bits);
  }
  SUCCEED();
}
