#include "kernels/summary.h"

#include <limits>

#include "tests/kernels/tensors.h"

using namespace rekindle::testing;
namespace kernels = rekindle::kernels;

namespace {

std::int64_t how_many(const at::Tensor& of) { return of.sum().item<std::int64_t>(); }

// How many of `x`, all finite and float64, have magnitudes from 2^power on, below twice that; at the ends,
// all beyond.
std::int64_t with_power(const at::Tensor& x, int power) {
  at::Tensor chosen = x != 0;
  if (power > kernels::kLowestPower) chosen = chosen & (x >= std::ldexp(1.0, power));
  if (power < kernels::kHighestPower) chosen = chosen & (x < std::ldexp(1.0, power + 1));
  return how_many(chosen & (x > 0));
}

void check_like_aten(const at::Tensor& x) {
  const kernels::Summary found = kernels::summary(x);
  const at::Tensor wide = x.to(at::kDouble).reshape({-1}), finite = wide.masked_select(at::isfinite(wide));
  CHECK(found.finite == finite.numel());
  CHECK(found.nans == how_many(at::isnan(wide)));
  CHECK(found.infs == how_many(at::isinf(wide)));
  CHECK(found.zeros == how_many(wide == 0));
  if (finite.numel() == 0) return;
  CHECK(found.min == finite.min().item<double>());
  CHECK(found.max == finite.max().item<double>());
  CHECK(found.mean == Approx(finite.mean().item<double>()).margin(1e-30));
  CHECK(found.squares == Approx(finite.square().sum().item<double>()));
  CHECK(found.deviations == Approx((finite - finite.mean()).square().sum().item<double>()).margin(1e-30));
  for (std::size_t i = 0; i < kernels::kPowers; ++i) {
    const int power = kernels::kLowestPower + static_cast<int>(i);
    CHECK(found.positive[i] == with_power(finite, power));
    CHECK(found.negative[i] == with_power(-finite, power));
  }
}

}  // namespace

TEST_CASE("a summary is ATen's in every dtype and size", "[kernels]") {
  at::manual_seed(5);
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  const std::int64_t rows = GENERATE(0, 1, 3, 205, 30001);
  CAPTURE(dtype, rows);
  const auto scales = at::tensor({1e-30, 1e-6, 0.0, 1.0, 1e4}, at::kDouble);
  check_like_aten((at::randn({rows, 5}, at::kDouble) * scales).to(dtype));
  check_like_aten((at::randn({rows, 5}, at::kDouble) + 1000).to(dtype));
}

TEST_CASE("what is not finite, not normal or zero of either sign is counted as such", "[kernels]") {
  const float inf = std::numeric_limits<float>::infinity(),
              smallest = std::numeric_limits<float>::denorm_min();
  check_like_aten(at::tensor({NAN, inf, -inf, 1.0F, -0.0F, 0.0F, smallest, -smallest, -3.0F, 3.4e38F}));
  check_like_aten(at::full({3000}, NAN));
  check_like_aten(at::zeros({2050}));
  at::Tensor mixed = at::randn({5000});
  mixed[17] = NAN;
  mixed[4099] = -inf;
  check_like_aten(mixed);
  CHECK(kernels::summary(at::tensor({-0.0F, -1.0F})).negative[-kernels::kLowestPower] == 1);
}

TEST_CASE("a summary has the same bits whatever the number of threads", "[kernels]") {
  const at::Tensor x = at::randn({400'000});
  const int threads = at::get_num_threads();
  const kernels::Summary found = kernels::summary(x);
  at::set_num_threads(threads == 1 ? 3 : 1);
  const kernels::Summary other = kernels::summary(x);
  at::set_num_threads(threads);
  CHECK(found.mean == other.mean);
  CHECK(found.deviations == other.deviations);
  CHECK(found.squares == other.squares);
}

TEST_CASE("a tensor of another dtype or with gaps is an error", "[kernels]") {
  CHECK_THROWS_AS(kernels::summary(at::zeros({2}, at::kDouble)), c10::Error);
  CHECK_THROWS_AS(kernels::summary(at::zeros({4}).slice(0, 0, 4, 2)), c10::Error);
}
