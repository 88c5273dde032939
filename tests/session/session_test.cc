#include "session/session.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <catch2/catch.hpp>

#include "tests/session/session_text.h"

namespace {

using rekindle::session::joint_of;
using rekindle::session::Session;
using rekindle::session::session_of;

constexpr const char* kPerceptron = R"(
graph mlp(%x: float64[4, 8], %w1: float64[16, 8], %b1: float64[16], %w2: float64[3, 16]) {
  opset 20, rekindle 1
  %h: float64[4, 16] = rekindle::Linear(%x, %w1, %b1)
  %a: float64[4, 16] = Gelu(%h)
  %y: float64[4, 3] = rekindle::Linear(%a, %w2)
  return %y
}
)";

std::vector<at::Tensor> perceptron_inputs() {
  const auto options = at::TensorOptions().dtype(at::kDouble);
  return {at::randn({4, 8}, options), at::randn({16, 8}, options).requires_grad_(),
          at::randn({16}, options).requires_grad_(), at::randn({3, 16}, options).requires_grad_()};
}

at::Tensor eager_perceptron(const std::vector<at::Tensor>& in) {
  return at::linear(at::gelu(at::linear(in[0], in[1], in[2])), in[3]);
}

std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& in) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& tensor : in) {
    if (tensor.grad().defined()) gradients.push_back(tensor.grad().clone());
    tensor.mutable_grad() = at::Tensor();
  }
  return gradients;
}

void require_close(const std::vector<at::Tensor>& ours, const std::vector<at::Tensor>& theirs) {
  REQUIRE(ours.size() == theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) REQUIRE(at::allclose(ours[i], theirs[i], 1e-10, 1e-12));
}

}  // namespace

TEST_CASE("a forward and a backward equal eager's", "[session]") {
  const auto session = session_of(kPerceptron, {false, true, true, true});
  const auto in = perceptron_inputs();
  for (int step = 0; step < 3; ++step) {
    const at::Tensor eager = eager_perceptron(in);
    eager.square().sum().backward();
    const auto expected = gradients_of(in);
    const at::Tensor ours = session->forward(in, true).at(0);
    REQUIRE(at::allclose(ours, eager));
    ours.square().sum().backward();
    require_close(gradients_of(in), expected);
  }
  CHECK(session->stats().plans == 1);
  CHECK(session->stats().frames == 1);
}

TEST_CASE("a forward whose outputs die without a backward gives its frame back", "[session]") {
  const auto session = session_of(kPerceptron, {false, true, true, true});
  const auto in = perceptron_inputs();
  for (int step = 0; step < 3; ++step) session->forward(in, true);
  CHECK(session->stats().frames == 1);
}

TEST_CASE("several forwards before their backwards do not disturb each other", "[session]") {
  const auto session = session_of(kPerceptron, {false, true, true, true});
  const auto a = perceptron_inputs();
  auto b = a;
  b[0] = at::randn_like(a[0]);
  eager_perceptron(a).sum().backward();
  eager_perceptron(b).square().sum().backward();
  const auto expected = gradients_of(a);
  const at::Tensor first = session->forward(a, true).at(0), second = session->forward(b, true).at(0);
  second.square().sum().backward();
  first.sum().backward();
  require_close(gradients_of(a), expected);
  CHECK(session->stats().frames == 2);
}

TEST_CASE("retain_graph repeats a backward, without it a second one is refused", "[session]") {
  const auto session = session_of(kPerceptron, {false, true, true, true});
  const auto in = perceptron_inputs();
  const at::Tensor loss = session->forward(in, true).at(0).square().sum();
  loss.backward({}, /*retain_graph=*/true);
  const auto once = gradients_of(in);
  loss.backward({}, /*retain_graph=*/true);
  require_close(gradients_of(in), once);
  loss.backward();
  require_close(gradients_of(in), once);
  REQUIRE_THROWS_WITH(loss.backward(), Catch::Contains("second time"));
}

TEST_CASE("a parameter modified in place between forward and backward is refused", "[session][host]") {
  const auto session = session_of(kPerceptron, {false, true, true, true});
  const auto in = perceptron_inputs();
  const at::Tensor y = session->forward(in, true).at(0);
  {
    const c10::AutoGradMode no_grad(false);
    in[3].add_(1);
  }
  REQUIRE_THROWS_WITH(y.sum().backward(), Catch::Contains("modified by an inplace operation"));
}

TEST_CASE("a backward may be given any of the outputs' cotangents", "[session]") {
  constexpr const char* text = R"(
graph g(%x: float64[6], %w: float64[6]) {
  opset 20, rekindle 1
  %h: float64[6] = Mul(%x, %w)
  %a: float64[6] = Sigmoid(%h)
  %b: float64[6] = Exp(%h)
  return %a, %b
}
)";
  const auto session = session_of(text, {true, true});
  const std::vector<at::Tensor> in{at::randn({6}, at::kDouble).requires_grad_(),
                                   at::randn({6}, at::kDouble).requires_grad_()};
  const auto run = [&](bool first, bool second, bool eager) {
    std::vector<at::Tensor> out;
    if (eager) out = {at::sigmoid(in[0] * in[1]), at::exp(in[0] * in[1])};
    if (!eager) out = session->forward(in, true);
    at::Tensor loss = at::zeros({}, at::kDouble);
    if (first) loss = loss + out[0].sum();
    if (second) loss = loss + out[1].square().sum();
    loss.backward();
    return gradients_of(in);
  };
  for (const auto& [first, second] : {std::pair{true, false}, {false, true}, {true, true}, {true, false}}) {
    require_close(run(first, second, false), run(first, second, true));
  }
}

TEST_CASE("outputs survive later runs and hold no memory of the arena", "[session]") {
  const auto session = session_of(kPerceptron, {false, false, false, false});
  const auto a = perceptron_inputs(), b = perceptron_inputs();
  const at::Tensor first = session->forward(a, false).at(0), copy = first.clone();
  session->forward(b, false);
  CHECK(at::equal(first, copy));
  CHECK_FALSE(first.requires_grad());
}

TEST_CASE("each input layout has a plan of its own", "[session]") {
  const auto session = session_of(kPerceptron, {false, true, true, true});
  auto in = perceptron_inputs();
  session->forward(in, true);
  in[0] = at::randn({8, 7}, at::kDouble).t();
  REQUIRE(at::allclose(session->forward(in, true).at(0), eager_perceptron(in)));
  in[0] = at::randn({0, 8}, at::kDouble);
  REQUIRE(session->forward(in, true).at(0).sizes() == at::IntArrayRef({0, 3}));
  CHECK(session->stats().plans == 3);
}

TEST_CASE("plans of many sizes are kept as long as they are small in sum", "[session]") {
  const auto kept = [](rekindle::session::SessionOptions options) {
    const auto session = session_of(joint_of(kPerceptron, {false, true, true, true}), std::move(options));
    auto in = perceptron_inputs();
    for (int size = 1; size <= 40; ++size) {
      in[0] = at::randn({size, 8}, at::kDouble);
      session->forward(in, true);
    }
    return session->stats().plans;
  };
  CHECK(kept({}) == 40);
  CHECK(kept({.max_plans = 3, .max_instructions = 0}) == 3);
  CHECK(kept({.max_plans = 1, .max_instructions = 100}) < 40);
}

TEST_CASE("create_graph is refused with a remedy", "[session]") {
  const auto session = session_of(kPerceptron, {false, true, true, true});
  const auto in = perceptron_inputs();
  const at::Tensor loss = session->forward(in, true).at(0).sum();
  REQUIRE_THROWS_WITH(loss.backward({}, true, /*create_graph=*/true), Catch::Contains("create_graph"));
}

TEST_CASE("an error while running names the node and keeps its type", "[session]") {
  constexpr const char* text = R"(
graph g(%w: float32[4, 2], %i: int64[3]) {
  opset 20, rekindle 1
  %rows: float32[3, 2] = rekindle::Embedding(%w, %i)
  return %rows
}
)";
  const auto session = session_of(text, {false, false});
  const std::vector<at::Tensor> in{at::randn({4, 2}), at::tensor({0, 9, 1}, at::kLong)};
  REQUIRE_THROWS_AS(session->forward(in, false), c10::IndexError);
  REQUIRE_THROWS_WITH(session->forward(in, false), Catch::Contains("rows"));
}

TEST_CASE("an op without a lowering is refused when the session is made", "[session]") {
  const auto session = Session::create(joint_of(
      "graph g(%x: float32[2]) {\n  opset 20\n  %y = MaxRoiPool(%x, %x)\n  return %y\n}\n", {false}));
  REQUIRE_FALSE(session.ok());
  CHECK(session.error().code == rekindle::ErrorCode::kUnsupported);
  CHECK_THAT(session.error().message, Catch::Contains("MaxRoiPool"));
}

TEST_CASE("results and gradients lie as they are asked to", "[session][host]") {
  using rekindle::session::ResultLayout;
  rekindle::session::SessionOptions options;
  options.output_layouts = {{ResultLayout::Kind::kOrder, {1, 0}},
                            {ResultLayout::Kind::kOrder, {1}},
                            {ResultLayout::Kind::kStrides, {20, 4}},
                            {ResultLayout::Kind::kAsComputed, {}}};
  options.gradient_layouts = {{ResultLayout::Kind::kOrder, {1, 0}}};
  const auto session = session_of(R"(
graph laid_out(%x: float64[n, m]) {
  opset 20, rekindle 1
  %a: float64[n, m] = Exp(%x)
  %axes = Constant() {value = int64[1]{0}}
  %s: float64[1, m] = ReduceSum(%x, %axes)
  %size = Shape(%x)
  %b: float64[n, m] = Expand(%s, %size)
  %c: float64[n, m] = Tanh(%x)
  %d: float64[m, n] = Transpose(%a) {perm = [1, 0]}
  return %a, %b, %c, %d
}
)",
                                  {true}, options);
  for (const std::int64_t columns : {3, 5}) {
    const at::Tensor x = at::randn({2, columns}, at::kDouble).requires_grad_();
    const std::vector<at::Tensor> y = session->forward(std::vector<at::Tensor>{x}, true);
    CHECK(y[0].strides() == at::IntArrayRef({1, 2}));
    CHECK(y[1].strides() == at::IntArrayRef({0, 1}));
    CHECK(y[2].strides() == at::IntArrayRef({20, 4}));
    CHECK(y[3].strides() == at::IntArrayRef({1, columns}));
    require_close(y, {x.exp(), x.sum(0, true).expand_as(x), x.tanh(), x.exp().t()});
    at::Tensor gradient;
    x.register_hook([&](const at::Tensor& given) { gradient = given; });
    y[0].sum().backward();
    CHECK(gradient.strides() == at::IntArrayRef({1, 2}));
    require_close({gradient}, {x.detach().exp()});
  }
}

// As a gradient whose graph was compared where a broadcast dimension had one element, and that is wider here.
TEST_CASE("a result that is computed for each element keeps them all", "[session][host]") {
  using rekindle::session::ResultLayout;
  rekindle::session::SessionOptions options;
  options.output_layouts = {{ResultLayout::Kind::kOrder, {1}}};
  const auto session = session_of(
      "graph each(%x: float64[n, m]) {\n  opset 20\n  %y: float64[n, m] = Tanh(%x)\n  return %y\n}\n", {true},
      options);
  for (const std::int64_t rows : {1, 3}) {
    const at::Tensor x = at::randn({rows, 4}, at::kDouble);
    require_close(session->forward(std::vector<at::Tensor>{x}, false), {x.tanh()});
  }
}

TEST_CASE("a layout that is none of a result's rank is an error", "[session]") {
  using rekindle::session::ResultLayout;
  for (const ResultLayout& layout :
       {ResultLayout{ResultLayout::Kind::kOrder, {0, 2}}, ResultLayout{ResultLayout::Kind::kOrder, {0, 0}},
        ResultLayout{ResultLayout::Kind::kStrides, {1}},
        ResultLayout{ResultLayout::Kind::kStrides, {-1, 1}}}) {
    rekindle::session::SessionOptions options;
    options.output_layouts = {layout};
    const auto session = session_of(kPerceptron, {false, false, false, false}, options);
    CHECK_THROWS_WITH(session->forward(perceptron_inputs(), false),
                      Catch::Contains("a result of rank 2 cannot"));
  }
}

TEST_CASE("a product with many columns is eager's in each of its blocks", "[session]") {
  const auto session = session_of(R"(
graph product(%x: float32[24, 16], %w: float32[8201, 16], %b: float32[8201]) {
  opset 20, rekindle 1
  %l: float32[24, 8201] = rekindle::Linear(%x, %w, %b)
  %y: float32[24, 8201] = Exp(%l)
  return %y
}
)",
                                  {false, false, false});
  const at::Tensor x = at::randn({24, 16}), w = at::randn({8201, 16}), b = at::randn({8201});
  const at::Tensor y = session->forward(std::vector<at::Tensor>{x, w, b}, false)[0];
  CHECK(at::allclose(y.log(), at::linear(x, w, b), 1e-5, 1e-5));
}

TEST_CASE("a vector times a matrix is written where it was planned", "[session]") {
  const auto session = session_of(R"(
graph product(%v: float64[3], %m: float64[3, 2]) {
  opset 20, rekindle 1
  %p: float64[2] = MatMul(%v, %m)
  %y: float64[2] = Exp(%p)
  return %y
}
)",
                                  {false, false});
  const at::Tensor v = at::randn({3}, at::kDouble), m = at::randn({3, 2}, at::kDouble);
  for (int call = 0; call < 2; ++call) {
    require_close(session->forward(std::vector<at::Tensor>{v, m}, false), {at::matmul(v, m).exp()});
  }
}
