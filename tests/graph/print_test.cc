#include "src/graph/text/print.h"

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "src/graph/element.h"
#include "tests/support/graph_text.h"

using namespace rekindle::graph;
using rekindle::testing::graph_from;

namespace {

// Prints a graph that holds `attribute`, reads it back and gives the attribute found there.
Attribute through_text(const Attribute& attribute) {
  Graph graph;
  graph.set_opset("", 20);
  Value* x = graph.add_input("x", {});
  Node* node = graph.create_node({.op_type = "Identity", .inputs = {x}, .attributes = {{"note", attribute}}});
  graph.add_output(node->output());
  const std::string text = print(graph);
  INFO(text);
  auto parsed = parse(text);
  if (!parsed.ok()) FAIL(parsed.error().message);
  CHECK(print(**parsed) == text);
  return *(*parsed)->nodes().front()->attribute("note");
}

void check_exact(const Attribute& attribute) { CHECK(same_attribute(attribute, through_text(attribute))); }

ConstantPtr random_constant(DType dtype, std::mt19937_64& random) {
  auto constant = std::make_shared<ConstantTensor>();
  constant->dtype = dtype;
  constant->sizes = {3, 5};
  for (std::size_t i = 0; i < 15 * dtype_size(dtype); ++i) {
    constant->bytes += static_cast<char>(dtype == DType::kBool ? random() % 2 : random());
  }
  return constant;
}

}  // namespace

TEST_CASE("the text form of docs/ir.md prints as it was written", "[graph]") {
  const std::string text = R"(graph tiny(%x: float32[batch, 16], %w: float32[4, 16], %flag: bool[]) {
  opset 20, rekindle 1
  %h: float32[batch, 4] = rekindle::Linear(%x, %w)
  %c = Constant() {value = int64[2]{1, 0}}
  %t: float32 = Transpose(%h) {perm = [1, 0]}
  %y: undefined[?, 4], %mask = Dropout(%t, _, %flag) {alpha = 0.5, note = "text", seed = 1}
  return %y, %h
}
)";
  CHECK(print(*graph_from(text)) == text);
}

TEST_CASE("names, symbols and strings that are no words are quoted", "[graph]") {
  const std::string text = R"(graph "my graph"(%"onnx::Mul 1": float32["batch + 1", "", "?"], %/layer.0/x-1) {
  opset 20, com.example 3, "odd domain" 4
  %"a\"b\\\n\x07" = Identity(%"onnx::Mul 1") {note = "é\"\\\n\x00\x7f"}
  return %"a\"b\\\n\x07", %/layer.0/x-1
}
)";
  auto parsed = parse(text);
  REQUIRE(parsed.ok());
  const std::string once = print(**parsed);
  CHECK(print(**parse(once)) == once);
  CHECK((*parsed)->nodes().front()->string_attribute("note", "") == std::string("é\"\\\n\0\x7f", 7));
  CHECK((*parsed)->find_value("a\"b\\\n\a") != nullptr);
  CHECK((*parsed)->inputs()[0]->type().dims->at(2).symbol == "?");
}

TEST_CASE("attributes of every kind survive, empty lists too", "[graph]") {
  check_exact(std::int64_t{-1});
  check_exact(std::numeric_limits<std::int64_t>::min());
  check_exact(std::string("%x = [1, 2] # not a comment"));
  check_exact(std::vector<std::int64_t>{});
  check_exact(std::vector<double>{});
  check_exact(std::vector<std::string>{});
  check_exact(std::vector<std::int64_t>{1, -2});
  check_exact(std::vector<double>{1, -2.5, 1e300});
  check_exact(std::vector<std::string>{"a", ""});
}

TEST_CASE("doubles survive to the last bit", "[graph]") {
  for (double value : {0.0, -0.0, 1.0, 0.1, 1e22, 1e-320, 5e-324, 1.7976931348623157e308, HUGE_VAL, -HUGE_VAL,
                       std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::quiet_NaN(),
                       std::numeric_limits<double>::signaling_NaN(), 9007199254740993.0}) {
    check_exact(value);
  }
  std::mt19937_64 random(7);
  for (int i = 0; i < 200; ++i) check_exact(std::bit_cast<double>(random()));
}

TEST_CASE("constants of every dtype survive to the last bit", "[graph]") {
  std::mt19937_64 random(11);
  for (int number = 1; number <= 16; ++number) {
    const auto dtype = static_cast<DType>(number);
    if (dtype == DType::kString) continue;
    for (int i = 0; i < 20; ++i) check_exact(random_constant(dtype, random));
  }
  check_exact(make_int64_constant({}, {0, 3}));
  check_exact(make_scalar_constant(DType::kBFloat16, -0.0));
}

TEST_CASE("every 16-bit float survives as text", "[graph]") {
  for (DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    auto constant = std::make_shared<ConstantTensor>();
    constant->dtype = dtype;
    constant->sizes = {0x10000};
    for (std::int64_t bits = 0; bits < 0x10000; ++bits) append_int64(DType::kUInt16, bits, constant->bytes);
    CHECK(same_attribute(ConstantPtr(constant), through_text(ConstantPtr(constant))));
  }
}

TEST_CASE("describe names the op, its output and the innermost frame", "[graph]") {
  const auto graph =
      graph_from("graph g(%x) { opset 20, rekindle 1\n %y = rekindle::StopGradient(%x)\n return %y }");
  Node& node = *graph->nodes().front();
  CHECK(describe(node) == "rekindle::StopGradient (%y)");
  node.set_source("model.py:12 f\nmain.py:1 g");
  CHECK(describe(node) == "rekindle::StopGradient (%y, from model.py:12 f)");
}
