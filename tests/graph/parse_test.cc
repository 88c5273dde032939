#include "src/graph/text/parse.h"

#include <random>

#include "tests/support/graph_text.h"

using namespace rekindle::graph;

namespace {

void check_error(std::string_view text, const std::string& expected) {
  const auto parsed = parse(text);
  INFO(text);
  REQUIRE_FALSE(parsed.ok());
  CHECK(parsed.error().code == rekindle::ErrorCode::kInvalidArgument);
  CHECK_THAT(parsed.error().message, Catch::Matchers::Contains(expected));
}

constexpr std::string_view kSample = R"(graph tiny(%x: float32[batch, 16], %w: float32[4, 16]) {
  opset 20, rekindle 1   # a comment
  %h: float32[batch, 4] = rekindle::Linear(%x, %w)
  %c = Constant() {value = float32[2]{1, nan(0x7fc00001)}}
  %y, %mask = Dropout(%h, _, %c) {seed = 1, note = "t\x00", alpha = [0.5, 1e3], e = floats[]}
  return %y, %h
})";

}  // namespace

TEST_CASE("a parse error gives line, column and what is wrong", "[graph]") {
  check_error("", "line 1, column 1: expected 'graph'");
  check_error("graph g(%x) {\n  %y = Relu(%z)\n  return %y\n}", "line 2, column 13: %z is not defined above");
  check_error("graph g(%x) {\n  %x = Relu(%x)\n  return %x\n}", "line 2, column 3: %x is defined twice");
  check_error("graph g(%x, %x) { return }", "line 1, column 13: %x is defined twice");
  check_error("graph g(%x) { %a, %a = Dropout(%x) return %a }", "%a is defined twice");
  check_error("graph g(%x: flot32) { return }", "line 1, column 13: 'flot32' is not a dtype");
  check_error("graph g(%x: float32[-2]) { return }", "a dimension cannot be negative");
  check_error("graph g(%x) { return %x", "expected '}', found the end of the text");
  check_error("graph g(%x) { return %x } more", "line 1, column 27: text follows");
  check_error("graph g(%x) { %y = Relu(%x) {a = \"x return %y }",
              "line 1, column 34: this string has no closing quote");
  check_error("graph g(%x) { %y = Relu(%x) {a = \"\\q\"} return %y }", "a backslash");
  check_error("graph g(%x) { %y = Relu(%x) {a = [1, 2.5]} return %y }",
              "the items of a list must be of one kind");
  check_error("graph g(%x) { %y = Relu(%x) {a = 1x} return %y }", "'1x' is not a number");
  check_error("graph g(%x) { %y = Relu(%x) {a = 1e999} return %y }", "'1e999' is not a number");
}

TEST_CASE("a constant must have as many elements as its sizes say, of its dtype", "[graph]") {
  check_error("graph g() { %y = Constant() {value = int64[2]{1}} return %y }",
              "the number of elements is not int64[2]'s");
  check_error("graph g() { %y = Constant() {value = int8[1]{128}} return %y }",
              "'128' is not an element of int8");
  check_error("graph g() { %y = Constant() {value = uint8[1]{-1}} return %y }",
              "'-1' is not an element of uint8");
  check_error("graph g() { %y = Constant() {value = int64[1]{1.5}} return %y }",
              "'1.5' is not an element of int64");
  check_error("graph g() { %y = Constant() {value = string[1]{1}} return %y }", "no constants of this dtype");
  check_error("graph g() { %y = Constant() {value = int8[9999999999, 9999999999]{1}} return %y }",
              "no constants of this");
}

TEST_CASE("a Constant's output has the constant's type", "[graph]") {
  const auto graph = rekindle::testing::graph_from(
      "graph g() { opset 20 %c = Constant() {value = int64[2]{1, 2}} return %c }");
  CHECK(print(graph->outputs()[0]->type()) == "int64[2]");
}

TEST_CASE("damaged text gives an error or a graph, never a crash", "[graph]") {
  REQUIRE(parse(kSample).ok());
  for (std::size_t size = 0; size < kSample.size(); ++size) CHECK_FALSE(parse(kSample.substr(0, size)).ok());
  std::mt19937 random(3);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text(kSample);
    for (int changes = 0; changes < 3; ++changes)
      text[random() % text.size()] = kSample[random() % kSample.size()];
    const auto parsed = parse(text);
    if (!parsed.ok()) continue;
    ++accepted;
    const std::string once = print(**parsed);
    const auto again = parse(once);
    if (!again.ok() || print(**again) != once) FAIL(text << "\n" << once);
  }
  CHECK(accepted > 100);
}
