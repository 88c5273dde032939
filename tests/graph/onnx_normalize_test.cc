#include "src/graph/onnx/normalize.h"

#include "src/graph/verify.h"
#include "tests/support/graph_text.h"

using namespace rekindle::graph;
using Catch::Matchers::Contains;

namespace {

// The text of a graph whose only ONNX node is `spec` on inputs x and s,
// as opset `opset` means it; or the error.
std::string normalized(NodeSpec spec, std::int64_t opset) {
  Graph graph("g");
  graph.set_opset("", 20);
  Value* x = graph.add_input("x", {});
  Value* s = graph.add_input("s", {});
  spec.inputs = spec.op_type == "Upsample" || spec.op_type == "Scatter" || spec.op_type == "GridSample"
                    ? std::vector{x, s}
                    : std::vector{x};
  if (spec.op_type == "Scatter") spec.inputs.push_back(x);
  if (const rekindle::Status status = normalize_node(graph, spec, opset, "node 0"); !status.ok())
    return status.error().message;
  graph.add_output(graph.create_node(std::move(spec))->output());
  const rekindle::Status sound = verify(graph);
  return sound.ok() ? print(graph) : sound.error().message;
}

}  // namespace

TEST_CASE("attributes of old opsets become inputs", "[graph]") {
  CHECK_THAT(normalized({.op_type = "TopK", .attributes = {{"k", 3}}, .outputs = 2}, 9),
             Contains("{value = int64[1]{3}}"));
  const std::string slice = normalized(
      {.op_type = "Slice",
       .attributes = {{"starts", std::vector<std::int64_t>{0}}, {"ends", std::vector<std::int64_t>{2}}}},
      9);
  CHECK_THAT(slice, Contains("int64[1]{0}") && Contains("int64[1]{2}") && !Contains("starts"));
  CHECK_THAT(normalized({.op_type = "Clip", .attributes = {{"max", 6.0}}}, 6), Contains("too old"));
  CHECK_THAT(normalized({.op_type = "Clip", .attributes = {{"max", 6.0}}}, 10),
             Contains("CastLike") && Contains("= Clip(%x, _, "));
  CHECK_THAT(normalized({.op_type = "DFT"}, 19), Contains("int64[]{1}") && Contains("= DFT(%x, _, "));
}

TEST_CASE("nodes of the newest opset stay as they are", "[graph]") {
  CHECK_THAT(normalized({.op_type = "Softmax", .attributes = {{"axis", -1}}}, 13),
             Contains("= Softmax(%x) {axis = -1}"));
  CHECK_THAT(normalized({.op_type = "DFT"}, 20), Contains("= DFT(%x)\n"));
}

TEST_CASE("Softmax of old opsets works on a matrix", "[graph]") {
  const std::string text = normalized({.op_type = "Softmax"}, 11);
  CHECK_THAT(text, Contains("Flatten(%x) {axis = 1}") && Contains("Softmax(") && Contains("Shape(%x)") &&
                       Contains("Reshape("));
}

TEST_CASE("renamed ops get their new names", "[graph]") {
  CHECK_THAT(normalized({.op_type = "Upsample"}, 9),
             Contains("= Resize(%x, _, %s) {coordinate_transformation_mode"));
  CHECK_THAT(normalized({.op_type = "Scatter"}, 10), Contains("= ScatterElements(%x, %s, %x)"));
  CHECK_THAT(normalized({.op_type = "GridSample", .attributes = {{"mode", "bicubic"}}}, 16),
             Contains("mode = \"cubic\""));
}
