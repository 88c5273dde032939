#include "kernels/dropout.h"

#include "tests/kernels/tensors.h"

using namespace rekindle::testing;
namespace kernels = rekindle::kernels;

namespace {

at::Tensor generator_state() { return at::detail::getDefaultCPUGenerator().get_state(); }

void set_generator_state(const at::Tensor& state) {
  auto generator = at::detail::getDefaultCPUGenerator();
  generator.set_state(state);
}

}  // namespace

TEST_CASE("dropout draws eager's numbers and leaves eager's generator", "[kernels]") {
  at::manual_seed(11);
  const auto dtype = GENERATE(from_range(std::begin(kFloatingTypes), std::end(kFloatingTypes)));
  const double p = GENERATE(0.1, 0.5, 1e-3, 0.999, 0.0, 1.0, 1.0 / 3);
  // One after another, so that draws begin anywhere in the generator's state.
  for (const std::int64_t size : {0, 1, 2, 311, 312, 313, 624, 1001, 99999}) {
    CAPTURE(dtype, p, size);
    const auto x = random_normal({size}, dtype);
    if (size % 2 == 1) at::rand({1}, at::kFloat);  // takes one word: leaves the generator at an odd place
    const auto before = generator_state();
    const auto eager = at::dropout(x, p, /*train=*/true);
    const auto after = generator_state();
    set_generator_state(before);
    auto mask = at::empty({size}, at::kBool);
    auto y = at::empty_like(x);
    kernels::dropout_forward(x, p, y, mask);
    CHECK(generator_state().equal(after));
    CHECK(bitwise_equal(y, eager));

    set_generator_state(before);
    auto reference_mask = at::empty({size}, at::kBool);
    kernels::dropout_sample_mask_reference(reference_mask, p, dtype);
    CHECK(generator_state().equal(after));
    CHECK(bitwise_equal(mask, reference_mask));
  }
}

TEST_CASE("a million draws of dropout are eager's", "[kernels]") {
  const auto dtype = GENERATE(at::kFloat, at::kDouble, at::kBFloat16);
  at::manual_seed(12);
  const auto eager = at::dropout(at::ones({1000, 1000}, dtype), 0.1, true);
  const auto after = generator_state();
  at::manual_seed(12);
  auto mask = at::empty({1000, 1000}, at::kBool);
  kernels::dropout_sample_mask(mask, 0.1, dtype);
  CHECK(mask.equal(eager != 0));
  CHECK(generator_state().equal(after));
}

TEST_CASE("dropout's product is eager's bit for bit, in place too", "[kernels]") {
  at::manual_seed(13);
  const auto dtype = GENERATE(from_range(std::begin(kFloatingTypes), std::end(kFloatingTypes)));
  const double p = GENERATE(0.1, 0.5, 0.3, 0.0, 1.0);
  for (const std::int64_t size : {0, 1, 17, 70001}) {
    CAPTURE(dtype, p, size);
    auto x = random_normal({size}, dtype);
    if (size > 4) {
      x[0] = INFINITY;
      x[1] = NAN;
      x[2] = -INFINITY;
    }
    auto mask = at::rand({size}).lt(0.7);
    if (p == 0 || p == 1) mask.fill_(p == 0);
    auto noise = mask.to(dtype);
    if (p < 1) noise.div_(1 - p);
    const auto expected = x * noise;
    auto y = at::empty_like(x);
    kernels::dropout_from_mask(x, mask, p, y);
    CHECK(error(y, expected) == 0);
    CHECK(bitwise_equal(y.nan_to_num(), expected.nan_to_num()));
    auto reference = at::empty_like(x);
    kernels::dropout_from_mask_reference(x, mask, p, reference);
    CHECK(error(reference, expected) == 0);
    kernels::dropout_from_mask(x, mask, p, x);
    CHECK(error(x, expected) == 0);
  }
}

TEST_CASE("wrong arguments of dropout are named", "[kernels]") {
  auto x = at::ones({3});
  auto mask = at::ones({3}, at::kBool);
  auto bytes = at::ones({3}, at::kByte);
  CHECK_THROWS_WITH(kernels::dropout_sample_mask(mask, 1.5, at::kFloat),
                    Catch::Contains("between 0 and 1, but got 1.5"));
  CHECK_THROWS_WITH(kernels::dropout_sample_mask(bytes, 0.5, at::kFloat),
                    Catch::Contains("mask must be Bool"));
  CHECK_THROWS_WITH(kernels::dropout_from_mask(x, bytes, 0.5, x), Catch::Contains("mask must be Bool"));
}

TEST_CASE("dropout on a GPU draws eager's numbers", "[kernels][cuda]") {
  if (!at::hasCUDA() || at::detail::getCUDAHooks().deviceCount() == 0) {
    WARN("skipped: no CUDA device");
    return;
  }
  const auto dtype = GENERATE(from_range(std::begin(kFloatingTypes), std::end(kFloatingTypes)));
  for (const std::int64_t size : {1, 1001, 99999}) {
    const auto x = random_normal({size}, dtype).cuda();
    at::manual_seed(14);
    const auto eager = at::dropout(x, 0.1, true);
    at::manual_seed(14);
    auto mask = at::empty({size}, x.options().dtype(at::kBool));
    auto y = at::empty_like(x);
    kernels::dropout_forward(x, 0.1, y, mask);
    CHECK(bitwise_equal(y.cpu(), eager.cpu()));
  }
}
