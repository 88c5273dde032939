#include "src/graph/torch_node.h"

#include <catch2/catch.hpp>

#include "src/graph/onnx/export.h"
#include "src/graph/onnx/import.h"
#include "src/graph/op_info.h"
#include "src/graph/text/parse.h"
#include "src/graph/text/print.h"
#include "src/graph/verify.h"

namespace rekindle::graph {
namespace {

std::string text_of(const std::string& body) {
  return "graph t(%x: float32[2]) {\n  opset 20, rekindle 1, torch 1\n  " + body + "\n  return %y\n}\n";
}

std::string problem(const std::string& body) {
  auto graph = parse(text_of(body));
  if (!graph.ok()) return graph.error().message;
  const Status verified = verify(**graph);
  return verified.ok() ? "none" : verified.error().message;
}

}  // namespace

TEST_CASE("a node of the torch domain keeps all it has through text and ONNX", "[graph]") {
  const std::string text = text_of(
      "%y: float32[2] = torch::aten.any_thing.Overload(%x, _, %x) {_differentiable = [0], _random = 1, "
      "_results = 1, "
      "alpha = float64[]{0.1}, axis = [1, 2], sizes = []}");
  const auto graph = parse(text);
  if (!graph.ok()) FAIL(graph.error().message);
  CHECK(print(**graph) == text);
  CHECK(is_random(*(*graph)->nodes().front()));
  const auto model = export_onnx(**graph);
  REQUIRE(model.ok());
  const auto again = import_onnx(*model);
  if (!again.ok()) FAIL(again.error().message);
  CHECK(print(**again) == text);
}

TEST_CASE("attributes of a torch node that do not fit it are refused", "[graph]") {
  using Catch::Contains;
  CHECK_THAT(problem("%y = torch::aten.f.default(%x) {_results = 2}"), Contains("_results is 2"));
  CHECK_THAT(problem("%y = torch::aten.f.default(%x) {_results = -1}"), Contains("_results is -1"));
  CHECK_THAT(problem("%y = torch::aten.f.default(%x) {_results = \"1\"}"), Contains("must be an int"));
  CHECK_THAT(problem("%y = torch::aten.f.default(%x) {_results = 1, _differentiable = [1]}"),
             Contains("no result"));
  CHECK_THAT(problem("%y = torch::aten.f.default(%x) {_results = 1, _tracked = [1]}"), Contains("not there"));
  CHECK_THAT(problem("%y = rekindle::TorchGradient(%x, %x, %x) {cotangents = 1}"), Contains("is not a tape"));
  CHECK_THAT(problem("%z, %t = torch::aten.f.default(%x) {_results = 1}\n  "
                     "%y = rekindle::TorchGradient(%x, %t, %x) {cotangents = 2}"),
             Contains("do not fit"));
  CHECK_THAT(problem("%z, %t = torch::aten.f.default(%x) {_results = 1}\n  "
                     "%y = rekindle::TorchGradient(%x, %x, %t, %x) {cotangents = 2}"),
             Contains("not of 2"));
  CHECK(problem("%z, %t = torch::aten.f.default(%x) {_results = 1}\n  "
                "%y = rekindle::TorchGradient(%x, %t, %x) {cotangents = 1}") == "none");
}

}  // namespace rekindle::graph
