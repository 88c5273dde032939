#include "tests/kernels/cross_entropy_cases.h"

using rekindle::kernels::CrossEntropyOptions;
using rekindle::kernels::Reduction;
using namespace rekindle::testing;
namespace kernels = rekindle::kernels;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Outputs run(const Case& c) {
  Outputs o{empty_loss(c), at::empty(c.target.sizes(), c.scores.options().dtype(logsumexp_type(c))),
            at::empty_like(c.scores)};
  kernels::cross_entropy_forward(c.scores, c.target, c.weight, c.options, o.loss, o.logsumexp);
  kernels::cross_entropy_backward(c.dloss, c.scores, c.target, o.logsumexp, c.weight, c.options, o.dscores);
  return o;
}

Outputs run_reference(const Case& c) {
  Outputs o{empty_loss(c), at::empty(c.target.sizes(), c.scores.options().dtype(logsumexp_type(c))),
            at::empty_like(c.scores)};
  kernels::cross_entropy_forward_reference(c.scores, c.target, c.weight, c.options, o.loss, o.logsumexp);
  kernels::cross_entropy_backward_reference(c.dloss, c.scores, c.target, o.logsumexp, c.weight, c.options,
                                            o.dscores);
  return o;
}

void check(const Case& c) {
  const auto dtype = c.scores.scalar_type();
  const Outputs ours = run(c);
  const Outputs reference = run_reference(c);
  const Outputs eager = run_eager(c, dtype);
  const Outputs exact = run_eager(c, at::kDouble);
  CAPTURE(dtype, c.scores.sizes(), c.options.reduction, c.options.label_smoothing, c.weight.defined());
  const double unit = epsilon(dtype);
  CAPTURE(error(ours.dscores, exact.dscores) / unit, error(eager.dscores, exact.dscores) / unit);
  CAPTURE(error(ours.loss, exact.loss) / unit, error(eager.loss, exact.loss) / unit);
  CHECK(as_good_as_eager(ours.loss, eager.loss, exact.loss));
  CHECK(as_good_as_eager(ours.dscores, eager.dscores, exact.dscores));
  CHECK(as_good_as_eager(reference.loss, eager.loss, exact.loss));
  CHECK(as_good_as_eager(reference.dscores, eager.dscores, exact.dscores));
}

Case mean_of(at::Tensor scores, at::Tensor target) {
  return {scores, target, {}, at::ones({}, scores.options()), {}};
}

}  // namespace

TEST_CASE("a mean over targets without weight is no number, with label smoothing too", "[kernels]") {
  Case c = mean_of(at::randn({3, 4}), at::full({3}, 2, at::kLong));
  c.weight = at::tensor({1.0F, 2.0F, 0.0F, 3.0F});
  for (const double smoothing : {0.0, 0.1, 1.0}) {
    c.options.label_smoothing = smoothing;
    CHECK(std::isnan(run_eager(c, at::kFloat).loss.item<float>()));
    CHECK(std::isnan(run(c).loss.item<float>()));
  }
}

TEST_CASE("cross entropy is as good as eager for every option, shape and dtype", "[kernels]") {
  at::manual_seed(1);
  const auto dtype = GENERATE(from_range(std::begin(kFloatingTypes), std::end(kFloatingTypes)));
  const auto reduction = GENERATE(Reduction::kNone, Reduction::kMean, Reduction::kSum);
  const double smoothing = GENERATE(0.0, 0.1, 1.0);
  const bool weighted = GENERATE(false, true);
  const auto sizes = GENERATE(std::vector<std::int64_t>{7}, std::vector<std::int64_t>{1, 1},
                              std::vector<std::int64_t>{12, 37}, std::vector<std::int64_t>{3, 5001},
                              std::vector<std::int64_t>{2, 10, 3}, std::vector<std::int64_t>{2, 5, 9, 11},
                              std::vector<std::int64_t>{0, 5}, std::vector<std::int64_t>{2, 5, 0});
  check(make_case(sizes, dtype, {reduction, -100, smoothing}, weighted));
}

TEST_CASE("cross entropy holds for a large vocabulary and for scores far from zero", "[kernels]") {
  at::manual_seed(2);
  const auto dtype = GENERATE(at::kFloat, at::kDouble, at::kBFloat16);
  check(make_case({5, 100003}, dtype, {}, false, 1));
  check(make_case({300, 257}, dtype, {}, false, 30));
  Case far = make_case({40, 50}, dtype, {}, false);
  far.scores.add_(1e4);
  check(far);
  Case far_tiled = make_case({4, 50, 70}, dtype, {}, false);
  far_tiled.scores.sub_(1e4);
  check(far_tiled);
}

TEST_CASE("cross entropy ignores any index it is told to", "[kernels]") {
  at::manual_seed(3);
  check(make_case({30, 8}, at::kFloat, {Reduction::kMean, 2, 0.0}, true));
  check(make_case({30, 8, 3}, at::kDouble, {Reduction::kSum, 0, 0.2}, true));
}

TEST_CASE("the mean over ignored rows only is nan and its gradient zero, as in eager", "[kernels]") {
  const double smoothing = GENERATE(0.0, 0.1);
  for (const auto& sizes : {std::vector<std::int64_t>{4, 5}, std::vector<std::int64_t>{4, 5, 6}}) {
    Case c = make_case(sizes, at::kFloat, {Reduction::kMean, -100, smoothing}, false);
    c.target.fill_(-100);
    const Outputs ours = run(c);
    CHECK(ours.loss.isnan().item<bool>());
    CHECK(ours.dscores.eq(0).all().item<bool>());
    check(c);
  }
}

TEST_CASE("infinities and nans in the scores spread as in eager", "[kernels]") {
  const auto dtype = GENERATE(at::kFloat, at::kDouble, at::kBFloat16);
  const bool tiled = GENERATE(false, true);
  const auto target = at::tensor({0, 1, 2, 0, 1, -100, -100, 2}, at::kLong);
  auto scores = at::tensor({-kInf, 1.0,   2.0,  0.0,  -kInf, 0.5, -kInf, -kInf, -kInf, kInf, 1.0, 2.0,
                            1.0,   -kInf, kNan, kNan, 1.0,   2.0, -kInf, 0.0,   1.0,   1e30, 0.0, -1e30},
                           at::kDouble)
                    .to(dtype)
                    .view({8, 3});
  Case c = mean_of(scores, target);
  c.options.reduction = Reduction::kNone;
  c.dloss = at::ones({8}, scores.options());
  if (tiled) {
    c.scores = scores.t().contiguous().unsqueeze(0);
    c.target = target.unsqueeze(0);
    c.dloss = c.dloss.unsqueeze(0);
  }
  check(c);
  // A block of -inf before the first finite score must not hide a nan.
  auto late = at::full({2, 5000}, -kInf, dtype);
  late.select(1, 4500).fill_(1.0);
  late.select(0, 1).select(0, 3).fill_(kNan);
  Case blocks = mean_of(late, at::full({2}, 4500, at::kLong));
  blocks.options.reduction = Reduction::kNone;
  blocks.dloss = at::ones({2}, scores.options());
  check(blocks);
}

TEST_CASE("a target that is no class is an index error, as in eager", "[kernels]") {
  for (const std::int64_t bad : {-1, 5, -101}) {
    Case c = make_case({4, 5}, at::kFloat, {}, false);
    c.target[2] = bad;
    CHECK_THROWS_AS(run_eager(c, at::kFloat), c10::IndexError);
    CHECK_THROWS_AS(run(c), c10::IndexError);
    auto logsumexp = at::zeros({4}, at::kFloat);
    auto dscores = at::zeros({4, 5}, at::kFloat);
    CHECK_THROWS_AS(
        kernels::cross_entropy_backward(c.dloss, c.scores, c.target, logsumexp, c.weight, c.options, dscores),
        c10::IndexError);
    CHECK(dscores.eq(0).all().item<bool>());
  }
}

TEST_CASE("dscores may be the scores themselves", "[kernels]") {
  at::manual_seed(4);
  const auto dtype = GENERATE(from_range(std::begin(kFloatingTypes), std::end(kFloatingTypes)));
  const double smoothing = GENERATE(0.0, 0.1);
  for (const auto& sizes : {std::vector<std::int64_t>{9, 3000}, std::vector<std::int64_t>{3, 20, 70}}) {
    Case c = make_case(sizes, dtype, {Reduction::kMean, -100, smoothing}, true);
    const Outputs apart = run(c);
    kernels::cross_entropy_backward(c.dloss, c.scores, c.target, apart.logsumexp, c.weight, c.options,
                                    c.scores);
    CHECK(bitwise_equal(c.scores, apart.dscores));
  }
}

TEST_CASE("the number of threads changes no bit of cross entropy", "[kernels]") {
  at::manual_seed(5);
  const int threads = at::get_num_threads();
  for (const auto& sizes : {std::vector<std::int64_t>{1003, 117}, std::vector<std::int64_t>{7, 20, 300}}) {
    const Case c = make_case(sizes, at::kFloat, {}, true);
    at::set_num_threads(1);
    const Outputs one = run(c);
    at::set_num_threads(4);
    const Outputs four = run(c);
    at::set_num_threads(threads);
    CHECK(bitwise_equal(one.loss, four.loss));
    CHECK(bitwise_equal(one.logsumexp, four.logsumexp));
    CHECK(bitwise_equal(one.dscores, four.dscores));
  }
}

TEST_CASE("wrong arguments of cross entropy are named", "[kernels]") {
  const Case good = make_case({4, 5}, at::kFloat, {}, false);
  Case c = good;
  c.scores = good.scores.t().contiguous().t();
  CHECK_THROWS_WITH(run(c), Catch::Contains("scores must be contiguous"));
  c = good;
  c.target = good.target.to(at::kInt);
  CHECK_THROWS_WITH(run(c), Catch::Contains("target must be Long, got Int"));
  c = good;
  c.target = at::zeros({3}, at::kLong);
  CHECK_THROWS_WITH(run(c), Catch::Contains("target must have shape [4], got [3]"));
  c = good;
  c.weight = at::ones({6}, at::kFloat);
  CHECK_THROWS_WITH(run(c), Catch::Contains("weight must have shape [5]"));
  c = good;
  c.options.label_smoothing = 1.5;
  CHECK_THROWS_WITH(run(c), Catch::Contains("label_smoothing must be between 0.0 and 1.0, got 1.5"));
  c = good;
  c.dloss = at::ones({4}, at::kFloat);
  CHECK_THROWS_WITH(run(c), Catch::Contains("dloss must have shape []"));
}

TEST_CASE("cross entropy on a GPU agrees with its reference", "[kernels][cuda]") {
  if (!at::hasCUDA() || at::detail::getCUDAHooks().deviceCount() == 0) {
    WARN("skipped: no CUDA device");
    return;
  }
  at::manual_seed(6);
  const auto dtype = GENERATE(from_range(std::begin(kFloatingTypes), std::end(kFloatingTypes)));
  const auto reduction = GENERATE(Reduction::kNone, Reduction::kMean, Reduction::kSum);
  const double smoothing = GENERATE(0.0, 0.1);
  const auto sizes = GENERATE(std::vector<std::int64_t>{7}, std::vector<std::int64_t>{12, 37},
                              std::vector<std::int64_t>{3, 50257}, std::vector<std::int64_t>{2, 10, 3},
                              std::vector<std::int64_t>{0, 5});
  Case c = make_case(sizes, dtype, {reduction, -100, smoothing}, true);
  const Outputs exact = run_eager(c, at::kDouble);
  const Outputs eager = run_eager(c, dtype);
  c.scores = c.scores.cuda();
  c.target = c.target.cuda();
  c.weight = c.weight.cuda();
  c.dloss = c.dloss.cuda();
  const Outputs ours = run(c);
  CHECK(as_good_as_eager(ours.loss, eager.loss, exact.loss));
  CHECK(as_good_as_eager(ours.dscores, eager.dscores, exact.dscores));
  kernels::cross_entropy_backward(c.dloss, c.scores, c.target, ours.logsumexp, c.weight, c.options, c.scores);
  CHECK(bitwise_equal(c.scores.cpu(), ours.dscores.cpu()));
}

TEST_CASE("blocks of the gradient have the bits of the whole, and come in order", "[kernels]") {
  at::manual_seed(4);
  const auto dtype = GENERATE(at::kFloat, at::kDouble);
  const double smoothing = GENERATE(0.0, 0.1);
  const bool weighted = GENERATE(false, true);
  const auto reduction = GENERATE(Reduction::kNone, Reduction::kMean);
  Case c = make_case({2100, 700}, dtype, {reduction, -100, smoothing}, weighted);
  c.scores[7][3] = kNan;  // of a row that counts, and of one that does not
  c.scores[8][3] = -kInf;
  c.target[7] = c.target[8] = 3;
  const Outputs whole = run(c);
  const std::int64_t columns = kernels::cross_entropy_block(2100, 700, dtype, at::kCPU);
  REQUIRE(columns < 700);
  at::Tensor memory = at::empty({2100 * columns}, c.scores.options());
  std::vector<at::Tensor> blocks;
  std::int64_t next = 0;
  kernels::cross_entropy_backward_blocks(c.dloss, c.scores, c.target, whole.logsumexp, c.weight, c.options,
                                         memory, [&](std::int64_t first, const at::Tensor& dscores) {
                                           CHECK(first == next);
                                           next += dscores.size(1);
                                           blocks.push_back(dscores.clone());
                                         });
  CHECK(blocks.size() > 1);
  CHECK(bitwise_equal(at::cat(blocks, 1), whole.dscores));
}

TEST_CASE("a gradient that is small, narrow or on another device comes whole", "[kernels]") {
  CHECK(kernels::cross_entropy_block(100, 700, at::kFloat, at::kCPU) == 700);
  CHECK(kernels::cross_entropy_block(0, 1 << 20, at::kFloat, at::kCPU) == 1 << 20);
  CHECK(kernels::cross_entropy_block(1 << 20, 1 << 20, at::kBFloat16, at::kCPU) == 1 << 20);
  CHECK(kernels::cross_entropy_block(1 << 20, 1 << 20, at::kFloat, at::kCUDA) == 1 << 20);
  CHECK(kernels::cross_entropy_block(1 << 20, 1 << 20, at::kFloat, at::kCPU) == 256);
}
