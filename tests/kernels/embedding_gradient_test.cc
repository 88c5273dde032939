#include "kernels/embedding_gradient.h"

#include "tests/kernels/tensors.h"

using namespace rekindle::testing;
namespace kernels = rekindle::kernels;

TEST_CASE("the embedding's gradient is eager's", "[kernels]") {
  at::manual_seed(21);
  const auto dtype = GENERATE(from_range(std::begin(kFloatingTypes), std::end(kFloatingTypes)));
  const auto index_type = GENERATE(at::kLong, at::kInt);
  const std::int64_t columns = GENERATE(0, 1, 7, 64, 100);
  const std::int64_t padding_idx = GENERATE(-1, 2);
  for (const std::int64_t count : {0, 1, 50, 1500}) {
    CAPTURE(dtype, columns, padding_idx, count);
    const auto indices = at::randint(11, {count}, index_type);
    const auto dy = random_normal({count, columns}, dtype);
    const auto eager = at::embedding_dense_backward(dy, indices, 11, padding_idx, false);
    const auto exact = at::embedding_dense_backward(dy.to(at::kDouble), indices, 11, padding_idx, false);
    auto dweight = at::full({11, columns}, NAN, dy.options());
    kernels::embedding_gradient(dy, indices, {padding_idx, false}, dweight);
    CHECK(as_good_as_eager(dweight, eager, exact));
    if (columns > 0) CHECK(bitwise_equal(dweight, eager));
    auto reference = at::full({11, columns}, NAN, dy.options());
    kernels::embedding_gradient_reference(dy, indices, {padding_idx, false}, reference);
    CHECK(error(reference, eager) == 0);

    const auto before = random_normal({11, columns}, dtype);
    auto sum = before.clone();
    kernels::embedding_gradient(dy, indices, {padding_idx, true}, sum);
    CHECK(as_good_as_eager(sum, before + eager, before.to(at::kDouble) + exact));
    auto reference_sum = before.clone();
    kernels::embedding_gradient_reference(dy, indices, {padding_idx, true}, reference_sum);
    CHECK(error(reference_sum, before + eager) == 0);
  }
}

TEST_CASE("the number of threads changes no bit of the embedding's gradient", "[kernels]") {
  at::manual_seed(22);
  const int threads = at::get_num_threads();
  const auto indices = at::randint(300, {4, 1000}, at::kLong);
  const auto dy = random_normal({4, 1000, 72}, at::kFloat);
  at::Tensor results[2] = {at::empty({300, 72}), at::empty({300, 72})};
  for (int i = 0; i < 2; ++i) {
    at::set_num_threads(i == 0 ? 1 : 4);
    kernels::embedding_gradient(dy, indices, {}, results[i]);
  }
  at::set_num_threads(threads);
  CHECK(bitwise_equal(results[0], results[1]));
}

TEST_CASE("wrong arguments of the embedding's gradient are named, before anything is written", "[kernels]") {
  const auto dy = at::ones({3, 4});
  auto dweight = at::full({5, 4}, 7.0);
  for (const std::int64_t bad : {-1, 5}) {
    const auto indices = at::tensor({0, 1, static_cast<int>(bad)}, at::kLong);
    CHECK_THROWS_AS(kernels::embedding_gradient(dy, indices, {}, dweight), c10::IndexError);
  }
  CHECK_THROWS_WITH(kernels::embedding_gradient(dy, at::zeros({2}, at::kLong), {}, dweight),
                    Catch::Contains("dy must have shape [2, 4], got [3, 4]"));
  CHECK_THROWS_WITH(kernels::embedding_gradient(dy, at::zeros({3}), {}, dweight),
                    Catch::Contains("indices must be int64 or int32, got Float"));
  CHECK(dweight.eq(7.0).all().item<bool>());
}
