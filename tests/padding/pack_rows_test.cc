// What leaves rows out, and what needs them all. Sizes are those that the types say: b, s and n, which is b ·
// s.
#include "src/padding/pack_rows.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "src/padding/simplify.h"
#include "tests/support/graph_text.h"

namespace {

using namespace rekindle::padding;
using rekindle::graph::Graph;
using rekindle::graph::Value;
using rekindle::testing::graph_from;

Trial trial_of(const Graph& graph, std::int64_t batch, std::int64_t length) {
  const std::map<std::string, std::int64_t> symbols{{"b", batch}, {"s", length}, {"n", batch * length}};
  Trial trial{batch, length, {}};
  const auto add = [&](const Value* value) {
    if (!value->type().dims) return;
    Sizes sizes;
    for (const auto& dim : *value->type().dims)
      sizes.push_back(dim.is_static() ? dim.size : symbols.at(dim.symbol));
    trial.sizes[value] = sizes;
  };
  for (const Value* input : graph.inputs()) add(input);
  for (const auto& node : graph.nodes()) {
    for (const Value* output : node->outputs()) add(output);
  }
  return trial;
}

TokenSizes sizes_of(const Graph& graph) {
  return TokenSizes({trial_of(graph, 4, 16), trial_of(graph, 5, 15), trial_of(graph, 6, 13)});
}

PackedGraph pack(const std::string& text) {
  const auto graph = graph_from(text);
  auto packed = pack_rows(*graph, 0, sizes_of(*graph));
  if (!packed.ok()) FAIL(packed.error().message);
  CHECK(packed->graph->inputs().size() == graph->inputs().size() + kRowInputs);
  CHECK(rekindle::graph::verify(*packed->graph).ok());
  CHECK(rekindle::graph::verify(*packed->question_graph).ok());
  return std::move(packed).value();
}

std::string why_not(const std::string& text) {
  const auto graph = graph_from(text);
  const auto packed = pack_rows(*graph, 0, sizes_of(*graph));
  REQUIRE(!packed.ok());
  return packed.error().message;
}

std::string nodes_of(const Graph& graph) {
  std::string names;
  for (const auto& node : graph.nodes()) {
    if (!node->is("Constant")) names += (names.empty() ? "" : " ") + node->op_type();
  }
  return names;
}

// Tokens are embedded to x; `body` makes y [b, s, 8] of it, of which a loss is taken.
std::string model(const std::string& body, const std::string& returned = "%loss") {
  return R"(graph g(%ids: int64[b, s], %labels: int64[b, s], %keep: bool[b, 1, 1, s], %e: float32[50, 8], %w: float32[8, 8]) {
  opset 20, rekindle 1
  %x: float32[b, s, 8] = rekindle::Embedding(%e, %ids)
)" + body +
         R"(
  %rows: int64[2] = Constant() {value = int64[2]{-1, 8}}
  %flat = Constant() {value = int64[1]{-1}}
  %scores: float32[n, 8] = Reshape(%y, %rows)
  %target: int64[n] = Reshape(%labels, %flat)
  %loss: float32[] = rekindle::CrossEntropyLoss(%scores, %target) {ignore_index = 7}
  return )" +
         returned + "\n}\n";
}

const char* const kAttention = R"(
  %order: float32[b, 2, s, 4] = Transpose(%heads) {perm = [0, 2, 1, 3]}
  %keys: float32[b, 2, 4, s] = Transpose(%order) {perm = [0, 1, 3, 2]}
  %products: float32[b, 2, s, s] = MatMul(%order, %keys)
)";

std::string attention(const std::string& masked) {
  return model(R"(
  %split: int64[4] = Constant() {value = int64[4]{0, 0, 2, 4}}
  %heads: float32[b, s, 2, 4] = Reshape(%x, %split))" +
               std::string(kAttention) + masked + R"(
  %p: float32[b, 2, s, s] = Softmax(%masked) {axis = -1}
  %z: float32[b, 2, s, 4] = MatMul(%p, %order)
  %back: float32[b, s, 2, 4] = Transpose(%z) {perm = [0, 2, 1, 3]}
  %join: int64[3] = Constant() {value = int64[3]{0, 0, -1}}
  %joined: float32[b, s, 8] = Reshape(%back, %join)
  %y: float32[b, s, 8] = rekindle::Linear(%joined, %w))");
}

}  // namespace

TEST_CASE("rows go through a perceptron to the loss", "[padding]") {
  const PackedGraph packed = pack(model("  %y: float32[b, s, 8] = rekindle::Linear(%x, %w)"));
  CHECK(nodes_of(*packed.graph) == "PackRows Embedding Linear Reshape PackRows Reshape CrossEntropyLoss");
  CHECK(nodes_of(*packed.question_graph) == "Reshape");
  REQUIRE(packed.questions.targets.size() == 1);
  CHECK(packed.questions.targets[0].ignored == 7);
  CHECK(packed.products == 1);
  CHECK(packed.row_results == 0);
}

TEST_CASE("a result with a row for each token gets them back, and its gradient is checked", "[padding]") {
  const PackedGraph packed = pack(model("  %y: float32[b, s, 8] = rekindle::Linear(%x, %w)", "%loss, %y"));
  CHECK(packed.row_results == 1);
  const auto* unpack = packed.graph->outputs()[1]->producer();
  CHECK(unpack->op_type() == "UnpackRows");
  REQUIRE(unpack->inputs().size() == 4);
  CHECK(unpack->input(3) == packed.graph->inputs().back());  // which of the counted rows count
}

TEST_CASE("what is the same for all tokens is broadcast to their rows", "[padding]") {
  const PackedGraph packed = pack(model(R"(
  %one: float32[1, 1, 8] = Constant() {value = float32[1, 1, 8]{1, 2, 3, 4, 5, 6, 7, 8}}
  %h: float32[b, s, 8] = Add(%x, %one)
  %axis: int64[1] = Constant() {value = int64[1]{2}}
  %m: float32[b, s, 1] = ReduceMean(%h, %axis)
  %c: float32[b, s, 8] = Sub(%h, %m)
  %y: float32[b, s, 8] = rekindle::Linear(%c, %w))"));
  CHECK(nodes_of(*packed.graph).starts_with("PackRows Embedding Squeeze Add ReduceMean Sub Linear"));
}

TEST_CASE("masks of attention are asked which rows are needed", "[padding]") {
  const PackedGraph packed = pack(attention(R"(
  %low: float32[] = Constant() {value = float32[]{-inf}}
  %masked: float32[b, 2, s, s] = Where(%keep, %products, %low))"));
  REQUIRE(packed.questions.sights.size() == 1);
  const RowQuestions::Sight& sight = packed.questions.sights[0];
  REQUIRE(sight.masks.size() == 1);
  CHECK(sight.masks[0].how == Mask::How::kKeeps);
  CHECK(packed.question_graph->outputs()[sight.masks[0].output]->name() == "keep");
  CHECK(sight.queries_are_rows);
  CHECK(packed.products == 1);
  CHECK(nodes_of(*packed.graph).find("UnpackRows") != std::string::npos);
}

TEST_CASE("a mask that hides nothing is none", "[padding]") {
  const PackedGraph packed = pack(attention(R"(
  %low: float32[] = Constant() {value = float32[]{-100}}
  %masked: float32[b, 2, s, s] = Where(%keep, %products, %low))"));
  CHECK(packed.questions.sights.empty());  // keys are needed all: nothing before it leaves rows out
  CHECK(packed.needs_all == "MatMul");
}

TEST_CASE("two masks on the same scores hide what either hides, each in its own attention", "[padding]") {
  const PackedGraph packed = pack(attention(R"(
  %low: float32[] = Constant() {value = float32[]{-inf}}
  %first: float32[b, 2, s, s] = Where(%keep, %products, %low)
  %bias: float32[b, 1, 1, s] = Cast(%keep) {to = 1}
  %masked: float32[b, 2, s, s] = Add(%first, %bias))"));
  REQUIRE(packed.questions.sights.size() == 1);
  CHECK(packed.questions.sights[0].masks.size() == 2);
}

TEST_CASE("a mask that shows keys to one attention and hides them from another is asked twice", "[padding]") {
  const std::string both = model(R"(
  %split: int64[4] = Constant() {value = int64[4]{0, 0, 2, 4}}
  %heads: float32[b, s, 2, 4] = Reshape(%x, %split))" +
                                 std::string(kAttention) + R"(
  %low: float32[] = Constant() {value = float32[]{-inf}}
  %shown: float32[b, 2, s, s] = Where(%keep, %products, %low)
  %hidden: float32[b, 2, s, s] = Where(%keep, %low, %products)
  %p: float32[b, 2, s, s] = Softmax(%shown) {axis = -1}
  %q: float32[b, 2, s, s] = Softmax(%hidden) {axis = -1}
  %u: float32[b, 2, s, 4] = MatMul(%p, %order)
  %v: float32[b, 2, s, 4] = MatMul(%q, %order)
  %z: float32[b, 2, s, 4] = Add(%u, %v)
  %back: float32[b, s, 2, 4] = Transpose(%z) {perm = [0, 2, 1, 3]}
  %join: int64[3] = Constant() {value = int64[3]{0, 0, -1}}
  %joined: float32[b, s, 8] = Reshape(%back, %join)
  %y: float32[b, s, 8] = rekindle::Linear(%joined, %w))");
  const PackedGraph packed = pack(both);
  REQUIRE(packed.questions.sights.size() == 2);
  CHECK(packed.questions.sights[0].masks[0].how == Mask::How::kKeeps);
  CHECK(packed.questions.sights[1].masks[0].how == Mask::How::kHides);
}

TEST_CASE("what works along the length needs all rows", "[padding]") {
  const std::string axis = "  %one: int64[1] = Constant() {value = int64[1]{1}}\n";
  for (const std::string body :
       {"  %scalar: int64[] = Constant() {value = int64[]{1}}\n  %y: float32[b, s, 8] = CumSum(%z, %scalar)",
        "  %y: float32[b, s, 8] = Softmax(%z) {axis = 1}",
        "  %m: float32[b, 1, 8] = ReduceMean(%z, %one)\n  %y: float32[b, s, 8] = Sub(%z, %m)",
        "  %y: float32[b, s, 8] = LayerNormalization(%z, %w) {axis = 1}"}) {
    INFO(body);
    CHECK(why_not(model(axis + "  %z: float32[b, s, 8] = rekindle::Linear(%x, %w)\n" + body))
              .starts_with("all rows are needed by "));
  }
}

TEST_CASE("a sum of rows with a weight needs those of which it is not zero", "[padding]") {
  const PackedGraph packed =
      pack(R"(graph g(%ids: int64[b, s], %mask: int64[b, s], %e: float32[50, 8], %w: float32[8, 8]) {
  opset 20, rekindle 1
  %x: float32[b, s, 8] = rekindle::Embedding(%e, %ids)
  %y: float32[b, s, 8] = rekindle::Linear(%x, %w)
  %m: float32[b, s] = Cast(%mask) {to = 1}
  %last: int64[1] = Constant() {value = int64[1]{-1}}
  %column: float32[b, s, 1] = Unsqueeze(%m, %last)
  %weighed: float32[b, s, 8] = Mul(%y, %column)
  %one: int64[1] = Constant() {value = int64[1]{1}}
  %sum: float32[b, 8] = ReduceSum(%weighed, %one) {keepdims = 0}
  return %sum
})");
  REQUIRE(packed.questions.weights.size() == 1);
  CHECK(!packed.questions.weights[0].negated);
  CHECK(packed.question_graph->outputs()[0]->name() == "mask");
}

TEST_CASE("results that are asked for as a whole keep all rows", "[padding]") {
  const std::string text = model(R"(
  %z: float32[b, s, 8] = rekindle::Linear(%x, %w)
  %y: float32[b, s, 8] = rekindle::Linear(%z, %w))",
                                 "%loss, %z");
  const auto graph = graph_from(text);
  const auto some = pack_rows(*graph, 0, sizes_of(*graph)), whole = pack_rows(*graph, 0, sizes_of(*graph), 1);
  CHECK(some->row_results == 1);
  CHECK(some->products == 2);
  CHECK(whole->row_results == 0);
  CHECK(whole->products == 1);
}

TEST_CASE("a product with another matrix for each sequence is of whole values", "[padding]") {
  const PackedGraph packed = pack(model(R"(
  %one: int64[1] = Constant() {value = int64[1]{1}}
  %m: float32[b, 1, 8] = ReduceMax(%x, %one)
  %turned: float32[b, 8, 1] = Transpose(%m) {perm = [0, 2, 1]}
  %v: float32[b, 8, 8] = MatMul(%turned, %m)
  %z: float32[b, s, 8] = MatMul(%x, %v)
  %y: float32[b, s, 8] = rekindle::Linear(%z, %w))"));
  CHECK(nodes_of(*packed.graph).starts_with("Embedding ReduceMax Transpose MatMul MatMul PackRows Linear"));
}

TEST_CASE("without a loss or a selection nobody knows which rows count", "[padding]") {
  CHECK(why_not(R"(graph g(%ids: int64[b, s], %e: float32[50, 8], %w: float32[8, 8]) {
  opset 20, rekindle 1
  %x: float32[b, s, 8] = rekindle::Embedding(%e, %ids)
  %y: float32[b, s, 8] = rekindle::Linear(%x, %w)
  return %y
})")
            .starts_with("no loss that ignores targets"));
}

TEST_CASE("a Dropout draws for all rows", "[padding]") {
  const PackedGraph packed = pack(model(R"(
  %p: float32[] = Constant() {value = float32[]{0.5}}
  %on: bool[] = Constant() {value = bool[]{true}}
  %z: float32[b, s, 8] = rekindle::Linear(%x, %w)
  %y: float32[b, s, 8], %m: bool[b, s, 8] = Dropout(%z, %p, %on))"));
  CHECK(nodes_of(*packed.graph).find("DropoutRows") != std::string::npos);
  CHECK(nodes_of(*packed.graph).find("Dropout ") == std::string::npos);
}

TEST_CASE("a Reshape of a Reshape reads what was there before, unless it keeps sizes", "[padding]") {
  const auto graph = graph_from(R"(graph g(%x: float32[b, s, 8]) {
  opset 20
  %flat: int64[1] = Constant() {value = int64[1]{-1}}
  %kept: int64[2] = Constant() {value = int64[2]{0, 1}}
  %a: float32[?] = Reshape(%x, %flat)
  %b: float32[?] = Reshape(%a, %flat)
  %c: float32[?, 1] = Reshape(%a, %kept)
  return %b, %c
})");
  join_reshapes(*graph);
  CHECK(graph->outputs()[0]->producer()->input(0)->name() == "x");
  CHECK(graph->outputs()[1]->producer()->input(0)->name() == "a");
}

TEST_CASE("sizes of what is computed from tokens are asked of the tokens", "[padding]") {
  const auto graph = graph_from(R"(graph g(%ids: int64[b, s], %x: float32[s, 8, b]) {
  opset 20
  %shape: int64[3] = Shape(%x)
  %two: int64[] = Constant() {value = int64[]{2}}
  %zero: int64[1] = Constant() {value = int64[1]{0}}
  %one: int64[] = Constant() {value = int64[]{1}}
  %batch: int64[] = Gather(%shape, %two)
  %length: int64[1] = Gather(%shape, %zero)
  %width: int64[] = Gather(%shape, %one)
  return %batch, %length, %width
})");
  ask_tokens_for_sizes(*graph, 0, sizes_of(*graph));
  const auto asked = [&](std::size_t output) {
    return graph->outputs()[output]->producer()->input(0)->producer()->input(0)->name();
  };
  CHECK(asked(0) == "ids");
  CHECK(asked(1) == "ids");
  CHECK(asked(2) == "x");
  CHECK(rekindle::graph::verify(*graph).ok());
}
