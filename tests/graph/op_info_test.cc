#include "src/graph/op_info.h"

#include <algorithm>

#include "tests/support/graph_text.h"

using namespace rekindle::graph;
using rekindle::testing::graph_from;

TEST_CASE("the op table is sorted and without duplicates", "[graph]") {
  const auto before = [](const OpInfo& a, const OpInfo& b) {
    return std::tie(a.domain, a.name) < std::tie(b.domain, b.name);
  };
  const auto& ops = all_ops();
  CHECK(ops.size() > 130);
  for (std::size_t i = 1; i < ops.size(); ++i) CHECK(before(ops[i - 1], ops[i]));
  for (const OpInfo& op : ops) CHECK(find_op(op.domain, op.name) == &op);
  CHECK(find_op("", "Linear") == nullptr);
  CHECK(find_op("rekindle", "Linear") != nullptr);
  CHECK(find_op("", "If") == nullptr);
}

TEST_CASE("shape-only inputs are those of docs/ir.md", "[graph]") {
  const auto graph = graph_from(R"(graph g(%x, %y, %z) {
  opset 20, rekindle 1
  %a = rekindle::SumToSizeOf(%x, %y)
  %b, %c = rekindle::ConcatGradient(%x, %y, %z) {axis = 0}
  %d = Shape(%x)
  %e = rekindle::EmbeddingGradient(%x, %y, %z)
  return %a, %b, %c, %d, %e
})");
  const auto node = [&](const char* name) -> const Node& { return *graph->find_value(name)->producer(); };
  CHECK_FALSE(is_shape_only(node("a"), 0));
  CHECK(is_shape_only(node("a"), 1));
  CHECK_FALSE(is_shape_only(node("b"), 0));
  CHECK(is_shape_only(node("b"), 1));
  CHECK(is_shape_only(node("b"), 2));
  CHECK(is_shape_only(node("d"), 0));
  CHECK_FALSE(is_shape_only(node("e"), 1));
  CHECK(is_shape_only(node("e"), 2));
}

TEST_CASE("a cast is a view unless it is known to change the dtype", "[graph]") {
  const auto graph = graph_from(R"(graph g(%x: float32[n], %y: bfloat16[n], %z) {
  opset 20
  %a: float32[n] = CastLike(%y, %x)
  %b: float32[n] = CastLike(%x, %x)
  %c: float32[n] = Cast(%z) {to = 1}
  %d = Identity(%z)
  %e: float32[n] = Exp(%x)
  return %a, %b, %c, %d, %e
})");
  const auto view = [&](const char* name) { return is_view(*graph->find_value(name)->producer()); };
  CHECK_FALSE(view("a"));
  CHECK(view("b"));
  CHECK(view("c"));
  CHECK(view("d"));
  CHECK_FALSE(view("e"));
}

TEST_CASE("the sum that a gradient is added to is its op's last input", "[graph]") {
  const auto graph = graph_from(R"(graph g(%x, %y) {
  opset 20, rekindle 1
  %a = rekindle::LinearWeightGradient(%x, %y)
  %b = rekindle::EmbeddingGradient(%x, %y, %x)
  %c = Add(%a, %b) {accumulate = 1}
  %d = Add(%a, %b)
  return %c, %d
})");
  const auto sum = [&](const char* name) { return sum_input(*graph->find_value(name)->producer()); };
  CHECK(sum("a") == 2);
  CHECK(sum("b") == 3);
  CHECK(sum("c") == 1);
  CHECK_FALSE(sum("d").has_value());
}

TEST_CASE("Dropout is random unless its training_mode is false", "[graph]") {
  const auto graph = graph_from(R"(graph g(%x, %mode) {
  opset 20
  %yes = Constant() {value = bool[]{true}}
  %no = Constant() {value = bool[]{false}}
  %a = Dropout(%x)
  %b = Dropout(%x, _, %no)
  %c = Dropout(%x, _, %yes)
  %d = Dropout(%x, _, %mode)
  %e = RandomNormalLike(%x)
  return %a, %b, %c, %d, %e
})");
  const auto random = [&](const char* name) { return is_random(*graph->find_value(name)->producer()); };
  CHECK_FALSE(random("a"));
  CHECK_FALSE(random("b"));
  CHECK(random("c"));
  CHECK(random("d"));
  CHECK(random("e"));
  CHECK_FALSE(random("yes"));
}
