#include "session/model.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include <catch2/catch.hpp>

#include "tests/support/graph_text.h"

using namespace rekindle::session;
using Catch::Matchers::Contains;

namespace {

std::shared_ptr<Model> model_of(const std::string& text) {
  auto model = Model::create(rekindle::testing::graph_from(text));
  if (!model.ok()) FAIL(model.error().message);
  return *std::move(model);
}

std::vector<float> numbers(const RunValue& value) {
  const at::Tensor flat = value.toTensor().contiguous();
  return {flat.const_data_ptr<float>(), flat.const_data_ptr<float>() + flat.numel()};
}

}  // namespace

TEST_CASE("a model whose sizes follow from its inputs has a plan", "[session]") {
  const auto model = model_of(R"(graph g(%x: float32[2]) {
  opset 20
  %y = Swish(%x)
  return %y
})");
  const RunValues outputs = model->run({at::ones({2})});
  CHECK(numbers(outputs[0])[0] == Approx(1 / (1 + std::exp(-1.0))));
  CHECK(model->why_interpreted().empty());
}

TEST_CASE("sizes that depend on data are interpreted", "[session]") {
  const auto model = model_of(R"(graph g(%x: float32[4], %s: int64[2]) {
  opset 20
  %twice = Add(%s, %s)
  %y = Reshape(%x, %twice)
  return %y
})");
  const RunValues outputs = model->run({at::ones({4}), at::tensor({1, 1}, at::kLong)});
  CHECK(outputs[0].toTensor().sizes() == std::vector<std::int64_t>{2, 2});
  CHECK_THAT(model->why_interpreted(), Contains("computed from data") && Contains("Reshape"));
}

TEST_CASE("a loop carries values, scans others and reads what is around it", "[session]") {
  const auto model = model_of(R"(graph g(%n: int64[], %x: float32[2], %w: float32[2]) {
  opset 20, rekindle 1
  %last, %all = rekindle::Loop(%n, _, %x, %w) {carried = 1, body = graph b(%i: int64[], %c: bool[], %x, %w) {
    opset 20, rekindle 1
    %y = Add(%x, %w)
    return %c, %y, %y
  }}
  return %last, %all
})");
  const RunValues outputs = model->run({at::scalar_tensor(3, at::kLong), at::ones({2}), at::ones({2})});
  CHECK(numbers(outputs[0]) == std::vector<float>{4, 4});
  CHECK(numbers(outputs[1]) == std::vector<float>{2, 2, 3, 3, 4, 4});
}

TEST_CASE("one branch of If runs", "[session]") {
  const auto model = model_of(R"(graph g(%c: bool[], %x: float32[1], %w: float32[1]) {
  opset 20, rekindle 1
  %y = rekindle::If(%c, %x, %w) {then_branch = graph t(%x) {
    opset 20, rekindle 1
    %a = Neg(%x)
    return %a
  }, else_branch = graph e(%w) {
    opset 20, rekindle 1
    return %w
  }}
  return %y
})");
  const at::Tensor x = at::ones({1}), w = at::ones({1}).mul(5);
  CHECK(numbers(model->run({at::scalar_tensor(true, at::kBool), x, w})[0]) == std::vector<float>{-1});
  const RunValues other = model->run({at::scalar_tensor(false, at::kBool), x, w});
  CHECK(numbers(other[0]) == std::vector<float>{5});
  CHECK_FALSE(other[0].toTensor().is_alias_of(w));
}

TEST_CASE("errors of interpreted nodes name the node", "[session]") {
  const auto model = model_of(R"(graph g(%x: float32[4], %s: int64[1]) {
  opset 20
  %twice = Add(%s, %s)
  %y = Reshape(%x, %twice)
  return %y
})");
  CHECK_THROWS_WITH(model->run({at::ones({4}), at::tensor({1}, at::kLong)}),
                    Contains("cannot reshape") && Contains("%y"));
}

TEST_CASE("an op inside a body that nobody can run is refused when the model is made", "[session]") {
  auto graph = rekindle::testing::graph_from(R"(graph g(%c: bool[], %b: float32[1]) {
  opset 20, rekindle 1
  %y = rekindle::If(%c, %b) {then_branch = graph t(%b) {
    opset 20, rekindle 1
    %a = MaxRoiPool(%b, %b)
    return %a
  }, else_branch = graph e() {
    opset 20, rekindle 1
    %a = Constant() {value = float32[]{1}}
    return %a
  }}
  return %y
})");
  const auto model = Model::create(std::move(graph));
  REQUIRE_FALSE(model.ok());
  CHECK_THAT(model.error().message, Contains("MaxRoiPool"));
}
