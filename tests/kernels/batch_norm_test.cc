#include "kernels/batch_norm.h"

#include "tests/kernels/tensors.h"

using namespace rekindle::testing;
using rekindle::kernels::BatchNormOptions;
namespace kernels = rekindle::kernels;

namespace {

struct Case {
  at::Tensor x, running_mean, running_var, weight, bias;
  bool relu = false;
  BatchNormOptions options = {};

  kernels::BatchNormChannels channels() const { return {running_mean, running_var, weight, bias}; }
};

struct Outputs {
  at::Tensor mean, inv_std, running_mean, running_var, factor, offset, y;

  kernels::BatchNormStatistics statistics() {
    return {mean, inv_std, running_mean, running_var, factor, offset};
  }
  std::vector<at::Tensor> all() const { return {mean, inv_std, running_mean, running_var, y}; }
};

Case make_case(at::IntArrayRef sizes, at::ScalarType dtype, bool affine, bool relu) {
  const at::IntArrayRef channels = sizes.slice(1, 1);
  Case c{(random_normal(sizes) * 3 + 1).to(dtype),
         random_normal(channels, dtype),
         at::rand(channels, dtype),
         {},
         {}};
  if (affine) {
    c.weight = (random_normal(channels) + 1).to(dtype);
    c.bias = random_normal(channels, dtype);
  }
  c.relu = relu;
  return c;
}

Outputs make_outputs(const Case& c) {
  const auto channels = [&] { return at::full_like(c.running_var, NAN); };
  return {channels(), channels(), channels(), channels(), channels(), channels(), at::empty_like(c.x)};
}

template <typename Statistics, typename Normalize>
Outputs run_by(const Case& c, Statistics statistics, Normalize normalize) {
  Outputs o = make_outputs(c);
  statistics(c.x, c.channels(), c.options, o.statistics());
  normalize(c.x, {o.mean, o.factor, o.offset}, c.relu, o.y);
  return o;
}

Outputs run(const Case& c) { return run_by(c, kernels::batch_statistics, kernels::batch_normalize); }

Outputs run_reference(const Case& c) {
  return run_by(c, kernels::batch_statistics_reference, kernels::batch_normalize_reference);
}

Outputs run_eager(const Case& c, at::ScalarType dtype) {
  const auto given = [&](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor.to(dtype)) : std::nullopt;
  };
  const auto [y, mean, inv_std, running_mean, running_var] = at::_native_batch_norm_legit_functional(
      c.x.to(dtype), given(c.weight), given(c.bias), c.running_mean.to(dtype), c.running_var.to(dtype), true,
      c.options.momentum, c.options.epsilon);
  return {mean, inv_std, running_mean, running_var, {}, {}, c.relu ? y.relu() : y};
}

void check_close(const Outputs& ours, const Outputs& eager, const Outputs& exact) {
  const auto a = ours.all(), b = eager.all(), e = exact.all();
  for (std::size_t i = 0; i < a.size(); ++i) {
    INFO("output " << i << ", errors " << error(a[i], e[i]) << " and eager's " << error(b[i], e[i]));
    CHECK(as_good_as_eager(a[i], b[i], e[i]));
  }
}

const std::vector<std::vector<std::int64_t>> kShapes{{4, 8, 9, 9},  {2, 1, 5, 7}, {3, 67},         {1, 3, 4},
                                                     {6, 33, 1, 1}, {5, 1},       {1, 5, 2, 3, 4}, {3, 70, 1},
                                                     {2, 3, 64, 2}, {7, 32}};

}  // namespace

TEST_CASE("a batch norm is as exact as eager's", "[kernels]") {
  const auto dtype = GENERATE(at::kFloat, at::kDouble);
  const bool affine = GENERATE(true, false), relu = GENERATE(true, false);
  for (const auto& shape : kShapes) {
    CAPTURE(shape, dtype, affine, relu);
    at::manual_seed(7);
    const Case c = make_case(shape, dtype, affine, relu);
    const Outputs eager = run_eager(c, dtype), exact = run_eager(c, at::kDouble);
    check_close(run(c), eager, exact);
    // In float64, where an element lies next to the relu's corner, all agree in these cases.
    if (dtype == at::kDouble) check_close(run_reference(c), eager, exact);
  }
}

TEST_CASE("the forward of a batch norm has eager's bits", "[kernels]") {
  const bool affine = GENERATE(true, false), relu = GENERATE(true, false);
  for (const auto& shape : kShapes) {
    CAPTURE(shape, affine, relu);
    at::manual_seed(8);
    const Case c = make_case(shape, at::kFloat, affine, relu);
    const Outputs ours = run(c), eager = run_eager(c, at::kFloat);
    CHECK(bitwise_equal(ours.mean, eager.mean));
    CHECK(bitwise_equal(ours.inv_std, eager.inv_std));
    CHECK(bitwise_equal(ours.running_mean, eager.running_mean));
    CHECK(at::equal(ours.running_var.nan_to_num(7), eager.running_var.nan_to_num(7)));
    CHECK(bitwise_equal(ours.y, eager.y));
  }
}

TEST_CASE("a batch norm whose channels have one element in a sample has eager's bits, with any threads",
          "[kernels]") {
  const int threads = at::get_num_threads();
  for (const int count : {1, 4}) {
    at::set_num_threads(count);
    for (const auto& shape : std::vector<std::vector<std::int64_t>>{{2, 33}, {64, 70}, {2, 33, 1, 1}}) {
      const Case c = make_case(shape, at::kFloat, true, true);
      const Outputs ours = run(c), eager = run_eager(c, at::kFloat);
      CHECK(bitwise_equal(ours.mean, eager.mean));
      CHECK(bitwise_equal(ours.inv_std, eager.inv_std));
      CHECK(bitwise_equal(ours.running_var, eager.running_var));
      CHECK(bitwise_equal(ours.y, eager.y));
    }
  }
  at::set_num_threads(threads);
}

TEST_CASE("a batch norm of infinities and nans is eager's", "[kernels]") {
  const bool relu = GENERATE(true, false);
  const double value = GENERATE(INFINITY, -INFINITY, NAN);
  Case c = make_case({2, 4, 5, 67}, at::kFloat, true, relu);
  c.x[0][1].view({-1})[0] = value;
  c.weight[3] = value;
  const auto ours = run(c).all(), eager = run_eager(c, at::kFloat).all();
  for (std::size_t i = 0; i < ours.size(); ++i) {
    INFO("output " << i);
    CHECK(at::allclose(ours[i], eager[i], 1e-4, 1e-4, /*equal_nan=*/true));
  }
}

TEST_CASE("a batch norm does not depend on the number of threads, nor on what it overwrites", "[kernels]") {
  const bool relu = GENERATE(true, false);
  const int threads = at::get_num_threads();
  for (const auto& shape : std::vector<std::vector<std::int64_t>>{{8, 33, 40, 41}, {4000, 130}}) {
    const Case c = make_case(shape, at::kFloat, true, relu);
    at::set_num_threads(1);
    Outputs one = run(c);
    at::set_num_threads(4);
    const Outputs four = run(c);
    if (shape.size() > 2) {
      for (std::size_t i = 0; i < one.all().size(); ++i) CHECK(bitwise_equal(one.all()[i], four.all()[i]));
    }
    at::Tensor y = c.x.clone();
    kernels::batch_normalize(y, {one.mean, one.factor, one.offset}, relu, y);
    CHECK(bitwise_equal(y, one.y));
  }
  at::set_num_threads(threads);
}

TEST_CASE("a batch norm of no channels does nothing", "[kernels]") {
  const Outputs o = run(make_case({2, 0, 3}, at::kFloat, true, true));
  CHECK(o.y.numel() == 0);
}

TEST_CASE("a batch norm names the argument that is wrong", "[kernels]") {
  using Catch::Matchers::Contains;
  const Case good = make_case({2, 3, 4}, at::kFloat, true, false);
  const auto with = [&](at::Tensor Case::*member, at::Tensor value) {
    Case c = good;
    c.*member = std::move(value);
    return c;
  };
  CHECK_THROWS_WITH(run(with(&Case::x, at::zeros({3}))), Contains("at least 2 dimensions"));
  CHECK_THROWS_WITH(run(with(&Case::x, at::zeros({0, 3, 4}))), Contains("no elements in a channel"));
  CHECK_THROWS_WITH(run(with(&Case::x, at::zeros({2, 3, 4}, at::kHalf))), Contains("float32 or float64"));
  CHECK_THROWS_WITH(run(with(&Case::x, at::zeros({2, 4, 3}).transpose(1, 2))), Contains("contiguous"));
  CHECK_THROWS_WITH(run(with(&Case::running_mean, at::zeros({4}))),
                    Contains("running_mean must have shape [3]"));
  CHECK_THROWS_WITH(run(with(&Case::weight, at::zeros({3}, at::kDouble))), Contains("weight must be Float"));
}
