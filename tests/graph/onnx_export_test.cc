#include "src/graph/onnx/export.h"

#include <cstdlib>
#include <fstream>

#include "src/graph/onnx/import.h"
#include "tests/support/graph_text.h"
#include "tests/support/temp_dir.h"

using namespace rekindle::graph;
using rekindle::testing::graph_from;

namespace {

std::unique_ptr<Graph> through_onnx(const Graph& graph) {
  const auto bytes = export_onnx(graph);
  if (!bytes.ok()) FAIL(bytes.error().message);
  auto imported = import_onnx(*bytes);
  if (!imported.ok()) FAIL(imported.error().message);
  CHECK(*export_onnx(**imported) == *bytes);
  return std::move(imported).value();
}

constexpr const char* kOnnxOnly = R"(graph mlp(%x: float32[batch, 4], %w: float32[4, 8], %flag: bool[]) {
  opset 20
  %h: float32[batch, 8] = MatMul(%x, %w)
  %ratio = Constant() {value = float32[]{0.5}}
  %d: float32[batch, 8], %mask: bool[batch, 8] = Dropout(%h, %ratio, %flag) {seed = 3}
  %e = Elu(%d) {alpha = 0.1}
  %axes = Constant() {value = int64[1]{-1}}
  %s: float32[batch, 1] = ReduceSum(%e, %axes) {keepdims = 1}
  %c: float32[batch, 8] = Clip(%e, _, %s)
  return %c, %x, %mask
}
)";

}  // namespace

TEST_CASE("a graph survives ONNX, exact floats and sources included", "[graph]") {
  const auto graph = graph_from(kOnnxOnly);
  graph->nodes().front()->set_source("model.py:1 forward\nmain.py:2");
  const auto again = through_onnx(*graph);
  CHECK(print(*again) == kOnnxOnly);
  CHECK(again->nodes().front()->source() == "model.py:1 forward\nmain.py:2");
}

TEST_CASE("a node's checkpoint survives ONNX, and only a number is one", "[graph]") {
  const auto graph = graph_from(kOnnxOnly);
  for (const char* source :
       {"model.py:1 forward", "", "a.py:1 f\nin checkpoint ", "a.py:1 f\nin checkpoint 3 or 4"}) {
    for (const std::uint32_t checkpoint : {0U, 7U}) {
      graph->nodes().front()->set_source(source);
      graph->nodes().front()->set_checkpoint(checkpoint);
      const auto again = through_onnx(*graph);
      CHECK(again->nodes().front()->source() == source);
      CHECK(again->nodes().front()->checkpoint() == checkpoint);
    }
  }
}

TEST_CASE("odd graphs survive ONNX", "[graph]") {
  for (const char* text :
       {"graph \"\"() {\n  return\n}\n",
        "graph g(%x, %y: undefined[?, n], %z: float32) {\n  opset 20\n  return %x, %x, %z\n}\n",
        R"(graph g(%x: float32[0], %"a b": bfloat16[]) {
  opset 20, rekindle 1
  %v0: undefined[?] = rekindle::StopGradient(%x) {a = [0.1, 0.5, nan(0x7ff0000000000001)], b = floats[], c = strings[], d = ["", "x"], e = [], f = -0.0}
  %c = Constant() {value = float16[2, 0]{}}
  %b = Constant() {value = bool[2]{true, false}}
  %k = Constant() {value = complex64[1]{1, nan(0xffffffff)}}
  return %v0
}
)"}) {
    const auto graph = graph_from(text);
    CHECK(print(*graph) == text);
    CHECK(print(*through_onnx(*graph)) == text);
  }
}

TEST_CASE("export refuses a graph that does not verify", "[graph]") {
  Graph graph;
  graph.add_output(graph.create_node({.op_type = "Nope"})->output());
  const auto bytes = export_onnx(graph);
  REQUIRE_FALSE(bytes.ok());
  CHECK_THAT(bytes.error().message, Catch::Matchers::Contains("Nope"));
}

TEST_CASE("onnx.checker accepts an exported graph of ONNX ops", "[graph]") {
  const rekindle::testing::TempDir dir;
  const std::string path = dir / "model.onnx";
  std::ofstream(path, std::ios::binary) << *export_onnx(*graph_from(kOnnxOnly));
  const std::string command =
      std::string(REKINDLE_PYTHON) +
      " -c \"import sys, onnx; onnx.checker.check_model(sys.argv[1], full_check=True)\" " + path;
  CHECK(std::system(command.c_str()) == 0);
}
