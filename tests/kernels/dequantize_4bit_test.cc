#include "kernels/dequantize_4bit.h"

#include "tests/kernels/tensors.h"

using namespace rekindle::testing;
namespace kernels = rekindle::kernels;
using kernels::Code4Bit;

TEST_CASE("weights of 4 bits are what plain ATen makes of them", "[kernels]") {
  at::manual_seed(31);
  const auto dtype = GENERATE(from_range(std::begin(kFloatingTypes), std::end(kFloatingTypes)));
  const auto code = GENERATE(Code4Bit::kFp4, Code4Bit::kNf4);
  const std::int64_t block_size = GENERATE(2, 64, 4096);
  for (const std::int64_t rows : {0, 1, 7, 300}) {
    const std::int64_t columns = 33, count = rows * columns;
    CAPTURE(dtype, block_size, rows);
    const auto packed = at::randint(256, {(count + 1) / 2}, at::kByte);
    const auto absmax = at::rand({(count + block_size - 1) / block_size}, at::kFloat);
    auto weight = at::full({rows, columns}, NAN, dtype), reference = weight.clone();
    kernels::dequantize_4bit(packed, absmax, block_size, code, weight);
    kernels::dequantize_4bit_reference(packed, absmax, block_size, code, reference);
    CHECK(bitwise_equal(weight, reference));
  }
}

TEST_CASE("the high half of a byte comes first", "[kernels]") {
  const auto packed = at::tensor({0x0F, 0x70}, at::kByte);
  const auto absmax = at::tensor({2.0F, 3.0F});
  auto weight = at::empty({3});
  kernels::dequantize_4bit(packed, absmax, 2, Code4Bit::kNf4, weight);
  CHECK(at::equal(weight, at::tensor({-2.0F, 2.0F, 0.0F})));
  kernels::dequantize_4bit(packed, absmax, 2, Code4Bit::kFp4, weight);
  CHECK(at::equal(weight, at::tensor({0.0F, -0.5F, 0.75F})));
}

TEST_CASE("weights of 4 bits that do not fit are refused", "[kernels]") {
  const auto packed = at::zeros({8}, at::kByte);
  auto weight = at::empty({4, 4});
  CHECK_THROWS_WITH(kernels::dequantize_4bit(packed, at::ones({2}), 7, Code4Bit::kNf4, weight),
                    Catch::Matchers::Contains("block_size must be even"));
  CHECK_THROWS_WITH(kernels::dequantize_4bit(packed, at::ones({2}), 16, Code4Bit::kNf4, weight),
                    Catch::Matchers::Contains("absmax must have shape [1]"));
  CHECK_THROWS_WITH(
      kernels::dequantize_4bit(packed.narrow(0, 0, 7), at::ones({1}), 16, Code4Bit::kNf4, weight),
      Catch::Matchers::Contains("packed must have shape [8]"));
}
