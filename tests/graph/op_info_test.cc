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
