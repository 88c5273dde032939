#include "tests/passes/pass_test.h"

using namespace rekindle;
using rekindle::testing::check_pass;
using rekindle::testing::check_unchanged;

namespace {

constexpr std::string_view kPass = "fold_shapes";

// The value that fold_shapes finds for `expression`, as text; "" when it stays. %x is float32[b, 4, 6].
std::string folded(const std::string& lines) {
  const auto graph = testing::graph_from(
      "graph g(%x: float32[b, 4, 6], %s: float32[2, 3]) {\n opset 20\n %shape = Shape(%x)\n" + lines +
      "\n return %y }");
  testing::run_pass(*graph, kPass);
  const auto constant = graph::constant_of(graph->outputs()[0]);
  return constant == nullptr ? "" : graph::print(*constant);
}

std::string binary(const std::string& op, const std::string& a, const std::string& b) {
  return folded("%a = Constant() {value = " + a + "} %b = Constant() {value = " + b + "} %y = " + op +
                "(%a, %b)");
}

}  // namespace

TEST_CASE("Shape and Size fold where the type says enough", "[passes]") {
  CHECK(folded("%y = Shape(%s)") == "int64[2]{2, 3}");
  CHECK(folded("%y = Shape(%x)").empty());
  CHECK(folded("%y = Shape(%x) {start = 1}") == "int64[2]{4, 6}");
  CHECK(folded("%y = Shape(%x) {end = -1, start = -2}") == "int64[1]{4}");
  CHECK(folded("%y = Shape(%x) {end = 1, start = 2}") == "int64[0]{}");
  CHECK(folded("%y = Size(%s)") == "int64[]{6}");
  CHECK(folded("%y = Size(%x)").empty());
}

TEST_CASE("dimensions are followed one by one", "[passes]") {
  const std::string gather = "%i = Constant() {value = int64[]{-1}} %d = Gather(%shape, %i) ";
  CHECK(folded(gather + "%y = Identity(%d)") == "int64[]{6}");
  CHECK(folded("%i = Constant() {value = int64[]{0}} %y = Gather(%shape, %i)").empty());
  CHECK(folded("%i = Constant() {value = int64[]{3}} %y = Gather(%shape, %i)")
            .empty());  // out of range: fails when run
  const std::string one = "%z = Constant() {value = int64[1]{0}} %one = Constant() {value = int64[1]{1}} ";
  const std::string end = "%end = Constant() {value = int64[1]{9223372036854775807}} ";
  CHECK(folded(one + end + "%y = Slice(%shape, %one, %end, %z)") == "int64[2]{4, 6}");
  CHECK(folded(one + "%m = Constant() {value = int64[1]{-1}} %y = Slice(%shape, %m, %z, %z, %m)") ==
        "int64[2]{6, 4}");
  CHECK(folded(one + gather + "%u = Unsqueeze(%d, %z) %y = Concat(%one, %u) {axis = 0}") == "int64[2]{1, 6}");
  CHECK(folded(one + gather + "%u = Unsqueeze(%d, %z) %y = Concat(%shape, %u) {axis = 0}").empty());
  CHECK(folded(one + gather + "%u = Unsqueeze(%d, %z) %y = Squeeze(%u, %z)") == "int64[]{6}");
  CHECK(folded(gather + "%y = Cast(%d) {to = 6}") == "int32[]{6}");
  CHECK(folded(gather + "%y = Cast(%d) {to = 1}").empty());
  CHECK(folded("%t = Constant() {value = int64[2]{3, 2}} %n = Constant() {value = int64[2]{-1, 1}} "
               "%y = Reshape(%t, %n)") == "int64[2, 1]{3, 2}");
  CHECK(folded("%t = Constant() {value = int64[2]{2, 1}} %y = ConstantOfShape(%t) {value = int64[1]{7}}") ==
        "int64[2, 1]{7, 7}");
  CHECK(folded("%t = Constant() {value = int64[2]{2, 1}} %y = ConstantOfShape(%t)").empty());  // float zeros
  CHECK(folded("%p = Shape(%s) %y = ReduceProd(%p) {keepdims = 0}") == "int64[]{6}");
  CHECK(folded("%a = Constant() {value = int64[]{7}} %b = Constant() {value = int64[]{0}} "
               "%c = Constant() {value = int64[]{-3}} %y = Range(%a, %b, %c)") == "int64[3]{7, 4, 1}");
}

TEST_CASE("integer arithmetic is ONNX's", "[passes]") {
  CHECK(binary("Add", "int64[2]{1, 2}", "int64[]{3}") == "int64[2]{4, 5}");
  CHECK(binary("Sub", "int64[2, 1]{1, 2}", "int64[2]{3, 5}") == "int64[2, 2]{-2, -4, -1, -3}");
  CHECK(binary("Mul", "int32[1]{7}", "int32[1]{-3}") == "int32[1]{-21}");
  CHECK(binary("Div", "int64[]{-7}", "int64[]{2}") == "int64[]{-3}");
  CHECK(binary("Mod", "int64[3]{-7, 7, -8}", "int64[3]{2, -2, 2}") == "int64[3]{1, -1, 0}");
  CHECK(binary("Max", "int64[]{-7}", "int64[]{2}") == "int64[]{2}");
  CHECK(binary("Min", "int64[]{-7}", "int64[]{2}") == "int64[]{-7}");
  CHECK(binary("Equal", "int64[2]{1, 2}", "int64[]{2}") == "bool[2]{false, true}");
  CHECK(binary("Less", "int32[2]{1, 2}", "int32[]{2}") == "bool[2]{true, false}");
  CHECK(binary("LessOrEqual", "int64[2]{1, 3}", "int64[]{2}") == "bool[2]{true, false}");
  CHECK(binary("Greater", "int64[2]{1, 3}", "int64[]{2}") == "bool[2]{false, true}");
  CHECK(binary("GreaterOrEqual", "int64[2]{1, 2}", "int64[]{2}") == "bool[2]{false, true}");
  CHECK(binary("And", "bool[2]{true, true}", "bool[]{false}") == "bool[2]{false, false}");
  CHECK(binary("Or", "bool[2]{true, false}", "bool[]{false}") == "bool[2]{true, false}");
}

TEST_CASE("what overflows, divides by zero or mixes dtypes stays for the run", "[passes]") {
  CHECK(binary("Add", "int64[]{9223372036854775807}", "int64[]{1}").empty());
  CHECK(binary("Mul", "int32[]{65536}", "int32[]{65536}").empty());
  CHECK(binary("Div", "int64[]{1}", "int64[]{0}").empty());
  CHECK(binary("Div", "int64[]{-9223372036854775808}", "int64[]{-1}").empty());
  CHECK(binary("Mod", "int64[]{1}", "int64[]{0}").empty());
  CHECK(binary("Add", "int64[]{1}", "int32[]{1}").empty());
  CHECK(binary("Add", "float32[]{1}", "float32[]{1}").empty());
  CHECK(binary("Add", "int64[2]{1, 2}", "int64[3]{1, 2, 3}").empty());
}

TEST_CASE("an exporter's expand with -1 in its shape becomes the shape itself", "[passes]") {
  check_pass(kPass, R"(graph g(%x: float32[b, 4]) {
  opset 20
  %s = Shape(%x)
  %m = Constant() {value = int64[1]{-1}}
  %q = Shape(%s)
  %ones = ConstantOfShape(%q) {value = int64[1]{1}}
  %minus = Mul(%ones, %m)
  %e = Equal(%s, %minus)
  %w = Where(%e, %ones, %s)
  %y = Expand(%x, %w)
  return %y
})",
             R"(graph g(%x: float32[b, 4]) {
  opset 20
  %s = Shape(%x)
  %m = Constant() {value = int64[1]{-1}}
  %q = Constant() {value = int64[1]{2}}
  %ones = Constant() {value = int64[2]{1, 1}}
  %minus = Constant() {value = int64[2]{-1, -1}}
  %e = Constant() {value = bool[2]{false, false}}
  %y = Expand(%x, %s)
  return %y
})");
}

TEST_CASE("an output that folds keeps its name", "[passes]") {
  check_pass(kPass, R"(graph g(%x: float32[2, 4]) {
  opset 20
  %y = Shape(%x)
  %z = Shape(%x)
  return %y, %z
})",
             R"(graph g(%x: float32[2, 4]) {
  opset 20
  %y = Constant() {value = int64[2]{2, 4}}
  %z = Constant() {value = int64[2]{2, 4}}
  return %y, %z
})");
}

TEST_CASE("large tensors are not followed", "[passes]") {
  check_unchanged(kPass, R"(graph g() {
  opset 20
  %s = Constant() {value = int64[2]{1000, 1000}}
  %y = ConstantOfShape(%s) {value = int64[1]{1}}
  %a = Constant() {value = int64[]{0}}
  %b = Constant() {value = int64[]{1}}
  %c = Constant() {value = int64[]{100000}}
  %r = Range(%a, %c, %b)
  return %y, %r
})");
}
