#include "kernels/difference.h"

#include "tests/kernels/tensors.h"

using namespace rekindle::testing;
namespace kernels = rekindle::kernels;

namespace {

void check_like(const kernels::Difference& found, const kernels::Difference& reference) {
  CHECK(found.norm == Approx(reference.norm));
  CHECK(found.scale == Approx(reference.scale));
  CHECK(found.is_like == reference.is_like);
  REQUIRE(found.octaves.size() == reference.octaves.size());
  for (std::size_t i = 0; i < found.octaves.size(); ++i) {
    CHECK(found.octaves[i].above == reference.octaves[i].above);
    CHECK(found.octaves[i].count == reference.octaves[i].count);
    CHECK(found.octaves[i].largest == Approx(reference.octaves[i].largest));
  }
}

void check_like_reference(const at::Tensor& ours, const at::Tensor& theirs) {
  const auto reference = kernels::difference_reference(ours, theirs);
  check_like(kernels::difference(ours, theirs), reference);
  check_like(kernels::difference_in_parts(ours, theirs), reference);
}

}  // namespace

TEST_CASE("a difference is told for elements of each magnitude", "[kernels]") {
  const auto theirs = at::tensor({0.0, 1.0, -1.5, 1e-8, 3.0}, at::kDouble);
  const auto ours = at::tensor({0.5, 1.0, -1.25, 3e-8, 3.0}, at::kDouble);
  const auto found = kernels::difference(ours, theirs);
  CHECK(found.is_like);
  CHECK(found.scale == Approx(std::sqrt(1 + 2.25 + 9)));
  CHECK(found.norm == Approx(std::sqrt(0.25 + 0.0625)));
  REQUIRE(found.octaves.size() == 4);
  CHECK((found.octaves[0].above == 0 && found.octaves[0].largest == 0.5));
  CHECK((found.octaves[1].count == 1 && found.octaves[1].largest == Approx(2e-8)));
  CHECK((found.octaves[2].above == 1 && found.octaves[2].count == 2 && found.octaves[2].largest == 0.25));
  CHECK((found.octaves[3].above == 2 && found.octaves[3].largest == 0));
}

TEST_CASE("a difference is the reference's for every dtype and layout", "[kernels]") {
  at::manual_seed(31);
  const auto dtype = GENERATE(at::kDouble, at::kFloat, at::kBFloat16, at::kHalf, at::kComplexFloat);
  const std::int64_t rows = GENERATE(0, 1, 70, 6000);
  CAPTURE(dtype, rows);
  const auto scales = at::tensor({1e-30, 1e-6, 0.0, 1.0, 1e4}, at::kDouble);
  const auto theirs = (at::randn({rows, 5}, dtype) * scales.to(dtype));
  const auto ours = theirs + theirs * at::randn({rows, 5}, dtype) / 8;
  check_like_reference(ours, theirs);
  check_like_reference(ours.t(), theirs.t());
  check_like_reference(ours.t().contiguous().t(), theirs);
  if (rows > 1) check_like_reference(ours.slice(0, 0, rows, 2), theirs.slice(0, 0, rows, 2));
}

TEST_CASE("what is not finite has to be the same in both", "[kernels]") {
  const auto inf = std::numeric_limits<float>::infinity();
  const auto theirs = at::tensor({NAN, inf, -inf, 1.0F});
  CHECK(kernels::difference(theirs, theirs).is_like);
  CHECK(kernels::difference(theirs, theirs).octaves.size() == 1);
  for (int i = 0; i < 4; ++i) {
    for (const float other : {NAN, inf, -inf, 1.0F}) {
      auto ours = theirs.clone();
      ours[i].fill_(other);
      CAPTURE(i, other);
      const float before = theirs[i].item<float>();
      const bool same = before == other || (std::isnan(before) && std::isnan(other));
      CHECK(kernels::difference(ours, theirs).is_like == same);
      check_like_reference(ours, theirs);
    }
  }
}

TEST_CASE("elements of a block with what has no finite square are measured like others", "[kernels]") {
  at::manual_seed(32);
  auto theirs = at::randn({5000}, at::kDouble);
  const std::int64_t place = GENERATE(0, 1500, 4999);
  const double odd = GENERATE(NAN, std::numeric_limits<double>::infinity(), 1e200, 1e-310);
  CAPTURE(place, odd);
  theirs[place].fill_(odd);
  const auto found = kernels::difference(theirs * 1.25, theirs);
  const auto reference = kernels::difference_reference(theirs * 1.25, theirs);
  CHECK(found.is_like == reference.is_like);
  REQUIRE(found.octaves.size() == reference.octaves.size());
  for (std::size_t i = 0; i < found.octaves.size(); ++i) {
    CHECK(found.octaves[i].above == reference.octaves[i].above);
    CHECK(found.octaves[i].count == reference.octaves[i].count);
    CHECK(found.octaves[i].largest == reference.octaves[i].largest);
  }
}
