#include "kernels/layer_norm.h"

#include "tests/kernels/tensors.h"

using rekindle::kernels::LayerNormOptions;
using namespace rekindle::testing;
namespace kernels = rekindle::kernels;

namespace {

struct Case {
  at::Tensor x, weight, bias, dy;
  LayerNormOptions options;
  std::int64_t rows, columns;
};

struct Outputs {
  at::Tensor y, mean, inv_std, dx, dweight, dbias;
};

Case make_case(std::int64_t rows, std::int64_t columns, at::ScalarType dtype, bool affine) {
  Case c{(random_normal({rows, columns}) * 3 + 1).to(dtype),
         {},
         {},
         random_normal({rows, columns}, dtype),
         {},
         rows,
         columns};
  if (affine) {
    c.weight = (random_normal({columns}) + 1).to(dtype);
    c.bias = random_normal({columns}, dtype);
  }
  return c;
}

Outputs make_outputs(const Case& c) {
  const auto statistics = c.x.options().dtype(c.x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  return {at::empty_like(c.x), at::empty({c.rows}, statistics),       at::empty({c.rows}, statistics),
          at::empty_like(c.x), at::empty({c.columns}, c.x.options()), at::empty({c.columns}, c.x.options())};
}

Outputs run(const Case& c) {
  Outputs o = make_outputs(c);
  auto workspace = at::full({kernels::layer_norm_workspace(c.rows, c.columns)}, NAN, o.mean.options());
  kernels::layer_norm_forward(c.x, c.weight, c.bias, c.options, o.y, o.mean, o.inv_std);
  kernels::layer_norm_backward(c.dy, c.x, o.mean, o.inv_std, c.weight, c.options,
                               {o.dx, o.dweight, o.dbias, workspace});
  return o;
}

Outputs run_reference(const Case& c) {
  Outputs o = make_outputs(c);
  at::Tensor none;
  kernels::layer_norm_forward_reference(c.x, c.weight, c.bias, c.options, o.y, o.mean, o.inv_std);
  kernels::layer_norm_backward_reference(c.dy, c.x, o.mean, o.inv_std, c.weight, c.options,
                                         {o.dx, o.dweight, o.dbias, none});
  return o;
}

// Eager in `dtype`; absent parameters are ones and zeros, so that their gradients exist.
Outputs run_eager(const Case& c, at::ScalarType dtype) {
  const auto parameter = [&](const at::Tensor& given, double value) {
    const auto tensor = given.defined() ? given.to(dtype) : at::full({c.columns}, value, dtype);
    return tensor.detach().clone().requires_grad_(true);
  };
  const auto x = c.x.to(dtype).detach().clone().requires_grad_(true);
  const auto weight = parameter(c.weight, 1);
  const auto bias = parameter(c.bias, 0);
  const auto y = at::layer_norm(x, {c.columns}, weight, bias, c.options.epsilon);
  y.backward(c.dy.to(dtype));
  return {y.detach(), {}, {}, x.grad(), weight.grad(), bias.grad()};
}

void check(const Case& c) {
  const Outputs eager = run_eager(c, c.x.scalar_type());
  const Outputs exact = run_eager(c, at::kDouble);
  for (const Outputs& ours : {run(c), run_reference(c)}) {
    CAPTURE(c.x.scalar_type(), c.rows, c.columns, c.weight.defined());
    CHECK(as_good_as_eager(ours.y, eager.y, exact.y));
    if (c.columns == 1) {
      // Of what is normalized nothing is left but rounding, times inv_std.
      CHECK((c.rows == 0 || ours.dx.abs().max().item<double>() < 1e-4));
      CHECK(ours.dweight.abs().max().item<double>() < 1e-4);
    } else {
      CHECK(as_good_as_eager(ours.dx, eager.dx, exact.dx));
      CHECK(as_good_as_eager(ours.dweight, eager.dweight, exact.dweight));
    }
    CHECK(as_good_as_eager(ours.dbias, eager.dbias, exact.dbias));
  }
}

}  // namespace

TEST_CASE("layer norm is as good as eager for every shape and dtype", "[kernels]") {
  at::manual_seed(31);
  const auto dtype = GENERATE(from_range(std::begin(kFloatingTypes), std::end(kFloatingTypes)));
  const bool affine = GENERATE(false, true);
  check(make_case(0, 5, dtype, affine));
  check(make_case(1, 1, dtype, affine));
  check(make_case(1, 8, dtype, affine));
  check(make_case(37, 33, dtype, affine));
  check(make_case(600, 100, dtype, affine));
  check(make_case(3, 5003, dtype, affine));
}

TEST_CASE("layer norm holds far from zero and spreads nans as eager", "[kernels]") {
  at::manual_seed(32);
  Case far = make_case(20, 300, at::kFloat, true);
  far.x.add_(1e3);
  check(far);
  const auto dtype = GENERATE(at::kFloat, at::kDouble);
  Case broken = make_case(4, 9, dtype, true);
  broken.x[1][2] = NAN;
  broken.x[2][0] = INFINITY;
  const Outputs ours = run(broken);
  const Outputs eager = run_eager(broken, dtype);
  CHECK(ours.y.isnan().equal(eager.y.isnan()));
  CHECK(ours.dx.isnan().equal(eager.dx.isnan()));
  CHECK(ours.dweight.isnan().all().item<bool>());
  CHECK(error(ours.dbias, eager.dbias) < 1e-6);
}

TEST_CASE("layer norm normalizes from any axis, and writes any gradients that are wanted", "[kernels]") {
  at::manual_seed(33);
  const auto x = random_normal({4, 5, 6}, at::kFloat);
  const auto dy = random_normal({4, 5, 6}, at::kFloat);
  for (const std::int64_t axis : {0, 1, 2, -1, -3}) {
    CAPTURE(axis);
    const std::int64_t first = axis < 0 ? axis + 3 : axis;
    const auto normalized = x.sizes().slice(first);
    const std::int64_t columns = c10::multiply_integers(normalized);
    const std::int64_t rows = x.numel() / columns;
    auto y = at::empty_like(x);
    auto mean = at::empty({rows}), inv_std = at::empty({rows});
    kernels::layer_norm_forward(x, {}, {}, {axis, 1e-5}, y, mean, inv_std);
    CHECK(error(y, at::layer_norm(x, normalized)) < 1e-6);

    auto dx = at::empty_like(x), dbias = at::empty({columns});
    at::Tensor none;
    auto workspace = at::empty({kernels::layer_norm_workspace(rows, columns)});
    kernels::layer_norm_backward(dy, x, mean, inv_std, {}, {axis, 1e-5}, {dx, none, dbias, workspace});
    CHECK(error(dbias, dy.view({rows, columns}).sum(0)) < 1e-6);
    auto alone = at::empty_like(x);
    kernels::layer_norm_backward(dy, x, mean, inv_std, {}, {axis, 1e-5}, {alone, none, none, none});
    CHECK(bitwise_equal(alone, dx));
    auto in_place = dy.clone();
    kernels::layer_norm_backward(in_place, x, mean, inv_std, {}, {axis, 1e-5}, {in_place, none, none, none});
    CHECK(bitwise_equal(in_place, dx));
    auto y_in_place = x.clone();
    kernels::layer_norm_forward(y_in_place, {}, {}, {axis, 1e-5}, y_in_place, mean, inv_std);
    CHECK(bitwise_equal(y_in_place, y));
  }
}

TEST_CASE("the number of threads changes no bit of layer norm", "[kernels]") {
  at::manual_seed(34);
  const int threads = at::get_num_threads();
  const Case c = make_case(1001, 130, at::kFloat, true);
  at::set_num_threads(1);
  const Outputs one = run(c);
  at::set_num_threads(4);
  const Outputs four = run(c);
  at::set_num_threads(threads);
  CHECK(bitwise_equal(one.y, four.y));
  CHECK(bitwise_equal(one.dx, four.dx));
  CHECK(bitwise_equal(one.dweight, four.dweight));
  CHECK(bitwise_equal(one.dbias, four.dbias));
}

TEST_CASE("wrong arguments of layer norm are named", "[kernels]") {
  Case c = make_case(4, 8, at::kFloat, true);
  c.weight = at::ones({7});
  CHECK_THROWS_WITH(run(c), Catch::Contains("weight must have 8 elements, got 7"));
  c = make_case(4, 8, at::kFloat, true);
  c.options.axis = 2;
  CHECK_THROWS_WITH(run(c), Catch::Contains("axis 2 is not one of x of shape [4, 8]"));
  c = make_case(4, 8, at::kFloat, true);
  Outputs o = make_outputs(c);
  auto small = at::empty({8});
  CHECK_THROWS_WITH(kernels::layer_norm_backward(c.dy, c.x, o.mean, o.inv_std, c.weight, c.options,
                                                 {o.dx, o.dweight, o.dbias, small}),
                    Catch::Contains("workspace must have 16 elements, got 8"));
}
