#include "tests/passes/pass_test.h"

using rekindle::testing::check_pass;
using rekindle::testing::check_unchanged;

namespace {
constexpr std::string_view kPass = "eliminate_common_subexpressions";
}

TEST_CASE("the same op on the same inputs runs once, through chains", "[passes]") {
  check_pass(kPass, R"(graph g(%x) {
  opset 20
  %c1 = Constant() {value = int64[1]{1}}
  %c2 = Constant() {value = int64[1]{1}}
  %a = Unsqueeze(%x, %c1)
  %b = Unsqueeze(%x, %c2)
  %p = Softmax(%a) {axis = 1}
  %q = Softmax(%b) {axis = 1}
  %y = Add(%p, %q)
  return %y
})",
             R"(graph g(%x) {
  opset 20
  %c1 = Constant() {value = int64[1]{1}}
  %a = Unsqueeze(%x, %c1)
  %p = Softmax(%a) {axis = 1}
  %y = Add(%p, %p)
  return %y
})");
}

TEST_CASE("constants and attributes that differ in a bit or a dtype stay apart", "[passes]") {
  check_unchanged(kPass, R"(graph g(%x) {
  opset 20, rekindle 1
  %c1 = Constant() {value = float32[]{0}}
  %c2 = Constant() {value = float32[]{-0}}
  %c3 = Constant() {value = int32[]{0}}
  %c4 = Constant() {value = int32[1]{0}}
  %c5 = Constant() {value = float32[]{nan(0x7fc00001)}}
  %c6 = Constant() {value = float32[]{nan}}
  %a = Elu(%x) {alpha = 0.0}
  %b = Elu(%x) {alpha = -0.0}
  %s = Softmax(%x) {axis = 0}
  %t = Softmax(%x)
  %r = Relu(%x)
  %i = Identity(%x)
  %z = rekindle::StopGradient(%x)
  return %c1, %c2, %c3, %c4, %c5, %c6, %a, %b, %s, %t, %r, %i, %z
})");
}

TEST_CASE("equal NaN attributes are merged", "[passes]") {
  check_pass(kPass, R"(graph g(%x) {
  opset 20
  %a = Elu(%x) {alpha = nan}
  %b = Elu(%x) {alpha = nan}
  %y = Add(%a, %b)
  return %y
})",
             R"(graph g(%x) {
  opset 20
  %a = Elu(%x) {alpha = nan}
  %y = Add(%a, %a)
  return %y
})");
}

TEST_CASE("random nodes are never merged", "[passes]") {
  check_unchanged(kPass, R"(graph g(%x) {
  opset 20
  %on = Constant() {value = bool[]{true}}
  %a = Dropout(%x, _, %on)
  %b = Dropout(%x, _, %on)
  %c = RandomNormalLike(%x)
  %d = RandomNormalLike(%x)
  return %a, %b, %c, %d
})");
}

TEST_CASE("an output keeps its name; two outputs stay two", "[passes]") {
  check_pass(kPass, R"(graph g(%x) {
  opset 20
  %a = Relu(%x)
  %b = Neg(%a)
  %y = Relu(%x)
  %z = Relu(%x)
  %w = Exp(%z)
  return %y, %z, %b, %w
})",
             R"(graph g(%x) {
  opset 20
  %y = Relu(%x)
  %b = Neg(%y)
  %z = Relu(%x)
  %w = Exp(%y)
  return %y, %z, %b, %w
})");
}

TEST_CASE("the kept value learns the type of the one it replaces", "[passes]") {
  check_pass(kPass, R"(graph g(%x) {
  opset 20
  %a: undefined[?, n] = Relu(%x)
  %b: float32[2, n] = Relu(%x)
  %y = Add(%a, %b)
  return %y
})",
             R"(graph g(%x) {
  opset 20
  %a: float32[2, n] = Relu(%x)
  %y = Add(%a, %a)
  return %y
})");
}

TEST_CASE("casts stay apart as long as gradients are to come", "[passes]") {
  constexpr std::string_view kTwice = R"(graph g(%x: float32[2]) {
  opset 20
  %a: float16[2] = Cast(%x) {to = 10}
  %b: float16[2] = Cast(%x) {to = 10}
  %y: float16[2] = Add(%a, %b)
  return %y
})";
  rekindle::passes::PassContext context;
  context.keeps_casts_apart = true;
  check_pass(kPass, kTwice, kTwice, context);
  check_pass(kPass, kTwice, R"(graph g(%x: float32[2]) {
  opset 20
  %a: float16[2] = Cast(%x) {to = 10}
  %y: float16[2] = Add(%a, %a)
  return %y
})");
}
