#include "tests/passes/pass_test.h"

using rekindle::testing::check_pass;
using rekindle::testing::check_unchanged;

namespace {
constexpr std::string_view kPass = "eliminate_identity";
}

TEST_CASE("nodes that return their input go", "[passes]") {
  check_pass(kPass, R"(graph g(%x: float32[b, 4], %dy: float32[b, 4]) {
  opset 20, rekindle 1
  %off = Constant() {value = bool[]{false}}
  %ratio = Constant() {value = float32[]{0.5}}
  %shape = Constant() {value = int64[2]{2, 3}}
  %k: float32[2, 3] = Expand(%ratio, %shape)
  %a = Identity(%x)
  %b = Dropout(%a, %ratio, %off)
  %c: float32[b, 4] = Dropout(%b)
  %d: float32[b, 4] = Cast(%c) {to = 1}
  %e: float32[b, 4] = CastLike(%d, %dy)
  %f: float32[b, 4] = Reshape(%e, %shape)
  %h: float32[b, 4] = Transpose(%f) {perm = [0, 1]}
  %i: float32[b, 4] = Concat(%h) {axis = 0}
  %j: float32[b, 4] = rekindle::SumToSizeOf(%dy, %x)
  %l = Reshape(%k, %shape)
  %y = Add(%i, %j)
  %z = Exp(%l)
  return %y, %z
})",
             R"(graph g(%x: float32[b, 4], %dy: float32[b, 4]) {
  opset 20, rekindle 1
  %off = Constant() {value = bool[]{false}}
  %ratio = Constant() {value = float32[]{0.5}}
  %shape = Constant() {value = int64[2]{2, 3}}
  %k: float32[2, 3] = Expand(%ratio, %shape)
  %y = Add(%x, %dy)
  %z = Exp(%k)
  return %y, %z
})");
}

TEST_CASE("what may change its input stays", "[passes]") {
  check_unchanged(kPass, R"(graph g(%x: float32[b, ?], %w: float32[b, 4], %q, %like: float32[n, 4]) {
  opset 20, rekindle 1
  %on = Constant() {value = bool[]{true}}
  %shape = Constant() {value = int64[2]{0, -1}}
  %a: float32[b, ?] = Reshape(%x, %shape)
  %b = Cast(%x) {to = 11}
  %c = Cast(%q) {to = 1}
  %d = Transpose(%x)
  %e = Transpose(%x) {perm = [1, 0]}
  %f = Dropout(%x, _, %on)
  %h, %mask = Dropout(%x)
  %i = rekindle::SumToSizeOf(%w, %like)
  %j = rekindle::StopGradient(%x)
  %k = Concat(%x, %x) {axis = 0}
  return %a, %b, %c, %d, %e, %f, %h, %mask, %i, %j, %k
})");
}

TEST_CASE("outputs keep their names and stay apart from inputs and from each other", "[passes]") {
  check_pass(kPass, R"(graph g(%x) {
  opset 20
  %a = Identity(%x)
  %b = Neg(%a)
  %c = Identity(%b)
  %d = Identity(%c)
  %e = Identity(%d)
  %f = Exp(%e)
  return %a, %c, %e, %f
})",
             R"(graph g(%x) {
  opset 20
  %a = Identity(%x)
  %c = Neg(%x)
  %e = Identity(%c)
  %f = Exp(%c)
  return %a, %c, %e, %f
})");
}

TEST_CASE("a product with one goes where nobody can tell", "[passes]") {
  check_pass(kPass, R"(graph g(%x: float32[b, 4], %w: float32[b, 4]) {
  opset 20, rekindle 1
  %one = Constant() {value = float32[]{1}}
  %two = Constant() {value = float32[]{2}}
  %a: float32[b, 4] = Tanh(%x)
  %b: float32[b, 4] = Mul(%a, %one)
  %c: float32[b, 4] = Exp(%b)
  %d: float32[b, 4] = Mul(%c, %two)
  %y = Add(%d, %d)
  return %y
})",
             R"(graph g(%x: float32[b, 4], %w: float32[b, 4]) {
  opset 20, rekindle 1
  %one = Constant() {value = float32[]{1}}
  %two = Constant() {value = float32[]{2}}
  %a: float32[b, 4] = Tanh(%x)
  %c: float32[b, 4] = Exp(%a)
  %d: float32[b, 4] = Mul(%c, %two)
  %y = Add(%d, %d)
  return %y
})");
}

TEST_CASE("a product with one stays a tensor of its own at the edge of the graph", "[passes]") {
  check_unchanged(kPass, R"(graph g(%x: float32[4], %w: float32[4]) {
  opset 20, rekindle 1
  %one = Constant() {value = float32[]{1}}
  %wide = Constant() {value = float32[2, 1]{1, 1}}
  %shape = Constant() {value = int64[2]{2, 2}}
  %a: float32[4] = Mul(%w, %one)
  %b: float32[4] = Tanh(%a)
  %c: float32[4] = Mul(%b, %one)
  %d: float32[4] = Exp(%x)
  %e: float32[4] = Mul(%d, %one)
  %f: float32[2, 2] = Reshape(%e, %shape)
  %g: float32[4] = Sin(%x)
  %h: float32[2, 4] = Mul(%g, %wide)
  %i = Cos(%h)
  return %c, %f, %i
})");
}

TEST_CASE("a batch norm's new statistics are not copied once more", "[passes]") {
  constexpr std::string_view kNorm =
      "%n, %a, %b, %m, %v = torch::aten._native_batch_norm_legit_functional.default(%x, _, _, %mean, %var) "
      "{_results = 5, eps = float64[]{1e-05}, momentum = float64[]{0.1}, training = 1}\n";
  const std::string begin =
      "graph g(%x: float32[4, 3], %mean: float32[3], %var: float32[3]) {\n"
      "  opset 20, torch 1\n  " +
      std::string(kNorm);
  check_pass(
      kPass, begin + R"(  %c = torch::aten.copy.default(%mean, %m) {_results = 1}
  %d = torch::aten.copy.default(%var, %v) {_results = 1}
  return %n, %c, %d
})",
      "graph g(%x: float32[4, 3], %mean: float32[3], %var: float32[3]) {\n"
      "  opset 20, torch 1\n"
      "  %n, %a, %b, %c, %d = torch::aten._native_batch_norm_legit_functional.default(%x, _, _, %mean, "
      "%var) {_results = 5, eps = float64[]{1e-05}, momentum = float64[]{0.1}, training = 1}\n"
      "  return %n, %c, %d\n"
      "}");
  for (const char* copies : {
           "%c = torch::aten.copy.default(%var, %m) {_results = 1}\n  return %n, %c\n}",       // over another
           "%c = torch::aten.copy.default(%mean, %a) {_results = 1}\n  return %n, %c\n}",      // is saved
           "%c = torch::aten.copy.default(%mean, %m) {_results = 1}\n  return %n, %c, %m\n}",  // both
           "%c = torch::aten.copy.default(%mean, %var) {_results = 1}\n  return %n, %c\n}",    // of an input
       })
    check_unchanged(kPass, begin + "  " + copies);
}
