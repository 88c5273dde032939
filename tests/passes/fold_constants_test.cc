#include "src/graph/element.h"
#include "tests/passes/pass_test.h"

using namespace rekindle;
using rekindle::testing::check_pass;
using rekindle::testing::check_unchanged;

namespace {

constexpr std::string_view kPass = "fold_constants";

// Knows Neg of one float32 and Dropout, whose mask it returns as well.
Result<std::vector<graph::ConstantPtr>> evaluate(const graph::Node& node) {
  const double x = graph::scalar_value(*graph::constant_of(node.input(0)));
  const auto scalar = [](graph::DType dtype, double value) {
    return graph::make_scalar_constant(dtype, value);
  };
  if (node.is("Neg")) return std::vector{scalar(graph::DType::kFloat32, -x)};
  if (node.is("Dropout"))
    return std::vector{scalar(graph::DType::kFloat32, x), scalar(graph::DType::kBool, 1)};
  if (node.is("Exp")) return internal_error("exp is broken");
  return unsupported("no such op");
}

// For what must not be evaluated.
Result<std::vector<graph::ConstantPtr>> refuse(const graph::Node& node) {
  return internal_error("must not be evaluated: " + graph::print(node));
}

}  // namespace

TEST_CASE("nodes of constants are computed, chains and all outputs", "[passes]") {
  check_pass(kPass, R"(graph g(%x) {
  opset 20
  %c = Constant() {value = float32[]{2}}
  %a = Neg(%c)
  %b: float32 = Neg(%a)
  %d, %mask = Dropout(%b)
  %y = Add(%x, %d)
  return %y, %mask
})",
             R"(graph g(%x) {
  opset 20
  %c = Constant() {value = float32[]{2}}
  %a = Constant() {value = float32[]{-2}}
  %b = Constant() {value = float32[]{2}}
  %d = Constant() {value = float32[]{2}}
  %mask = Constant() {value = bool[]{true}}
  %y = Add(%x, %d)
  return %y, %mask
})",
             {.evaluate = evaluate});
}

TEST_CASE("without an evaluator, or with one that does not know the op, nothing happens", "[passes]") {
  constexpr std::string_view kText = R"(graph g() {
  opset 20
  %c = Constant() {value = float32[]{2}}
  %y = Relu(%c)
  return %y
})";
  check_unchanged(kPass, kText);
  check_unchanged(kPass, kText, {.evaluate = evaluate});
}

TEST_CASE("random nodes and nodes with other inputs are left alone", "[passes]") {
  check_unchanged(kPass, R"(graph g(%x) {
  opset 20
  %c = Constant() {value = float32[]{2}}
  %on = Constant() {value = bool[]{true}}
  %d = Dropout(%c, _, %on)
  %n = RandomNormalLike(%c)
  %a = Add(%c, %x)
  return %d, %n, %a
})",
                  {.evaluate = refuse});
}

TEST_CASE("a failing evaluator is an error that names the node", "[passes]") {
  const auto graph = testing::graph_from(
      "graph g() { opset 20 %c = Constant() {value = float32[]{2}} %y = Exp(%c) return %y }");
  const auto result = passes::run_passes(*graph, std::span(&kPass, 1), {.evaluate = evaluate});
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().message == "folding Exp (%y): exp is broken");
}

TEST_CASE("results that may be large are not computed", "[passes]") {
  check_unchanged(kPass, R"(graph g() {
  opset 20
  %big = Constant() {value = int64[2]{1000, 1000}}
  %c = Constant() {value = float32[]{2}}
  %n = Constant() {value = int64[]{9223372036854775807}}
  %a = ConstantOfShape(%big)
  %b = Expand(%c, %big)
  %d: float32[300, 300] = Relu(%c)
  %e = Tile(%c, %big)
  %f = Range(%n, %n, %n)
  %h = Expand(%big, %n)
  return %a, %b, %d, %e, %f, %h
})",
                  {.evaluate = refuse});
}
