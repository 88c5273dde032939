#include "src/graph/control_flow.h"

#include <onnx/onnx-ml.pb.h>

#include "src/graph/onnx/export.h"
#include "src/graph/onnx/import.h"
#include "src/graph/text/parse.h"
#include "src/graph/verify.h"
#include "tests/support/graph_text.h"

using namespace rekindle::graph;
using Catch::Matchers::Contains;

namespace {

// A loop that adds %w to %x; the body has %w as an input of its own.
constexpr const char* kLoop = R"(graph g(%n: int64[], %go: bool[], %x: float32[2], %w: float32[2]) {
  opset 20, rekindle 1
  %last, %all = rekindle::Loop(%n, %go, %x, %w) {body = graph b(%i: int64[], %c: bool[], %x, %w) {
    opset 20, rekindle 1
    %y = Add(%x, %w)
    return %c, %y, %y
  }, carried = 1}
  return %last, %all
}
)";

std::string problem_with(const std::string& text) {
  const auto graph = parse(text);
  if (!graph.ok()) return graph.error().message;
  const rekindle::Status sound = verify(**graph);
  return sound.ok() ? "" : sound.error().message;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

}  // namespace

TEST_CASE("a node that owns a graph is printed, parsed, verified and goes through ONNX", "[graph]") {
  const auto graph = parse(kLoop);
  REQUIRE(graph.ok());
  REQUIRE(verify(**graph).ok());
  CHECK(print(**graph) == kLoop);
  const auto bytes = export_onnx(**graph);
  REQUIRE(bytes.ok());
  const auto again = import_onnx(*bytes);
  REQUIRE(again.ok());
  CHECK(print(**again) == kLoop);
}

TEST_CASE("bodies that do not fit their node are wrong", "[graph]") {
  CHECK_THAT(problem_with(replaced(kLoop, "carried = 1", "carried = 3")), Contains("its inputs do not fit"));
  CHECK_THAT(problem_with(replaced(kLoop, "return %c, %y, %y", "return %c, %y")),
             Contains("its outputs do not fit"));
  CHECK_THAT(problem_with(replaced(kLoop, ", carried = 1", "")), Contains("carried is missing"));
  CHECK_THAT(problem_with(replaced(kLoop, "= Add(%x, %w)", "= Nope(%x, %w)")),
             Contains("the op is not known"));
  CHECK_THAT(problem_with(replaced(kLoop, "opset 20, rekindle 1", "opset 21, rekindle 1")),
             Contains("has other opsets than its graph"));
}

TEST_CASE("graphs cannot be nested without end", "[graph]") {
  std::string text = "graph g() {\n", end;
  for (int i = 0; i < 60; ++i) text += "%x = rekindle::Loop() {body = graph b() {\n";
  CHECK_THAT(problem_with(text), Contains("nested too deeply"));
}

TEST_CASE("ONNX's bodies get what they read from around them as inputs", "[graph]") {
  onnx::ModelProto model;
  auto& opset = *model.add_opset_import();
  opset.set_version(20);
  auto& graph = *model.mutable_graph();
  for (const char* name : {"c", "x", "w"}) graph.add_input()->set_name(name);
  graph.add_output()->set_name("y");
  onnx::NodeProto& node = *graph.add_node();
  node.set_op_type("If");
  node.add_input("c");
  node.add_output("y");
  for (const auto& [branch, read] : {std::pair("else_branch", "w"), std::pair("then_branch", "x")}) {
    onnx::AttributeProto& attribute = *node.add_attribute();
    attribute.set_name(branch);
    attribute.set_type(onnx::AttributeProto::GRAPH);
    onnx::NodeProto& relu = *attribute.mutable_g()->add_node();
    relu.set_op_type("Relu");
    relu.add_input(read);
    relu.add_output("r");
    attribute.mutable_g()->add_output()->set_name("r");
  }
  const auto imported = import_onnx(model.SerializeAsString());
  REQUIRE(imported.ok());
  CHECK_THAT(print(**imported), Contains("%y = rekindle::If(%c, %x, %w)"));
}
