#include "tests/autodiff/joint_text.h"

namespace rekindle::autodiff {
namespace {

const std::string kSplit = R"(graph t(%x: float32[4], %i: int64[2]) {
  opset 20, rekindle 1, torch 1
  %a: float32[2], %b: float32[2], %c: int64[2] = torch::my.op.default(%x, %i) {_results = 3, _differentiable = [0, 1]}
  return %a, %b, %c
})";

}  // namespace

TEST_CASE("an operator of PyTorch's gets a tape, and one gradient node that reads it", "[autodiff]") {
  const JointGraph joint = joint_of(kSplit, "10");
  CHECK(joint.cotangent_of == std::vector<std::size_t>{0, 1});
  const graph::Node& forward = *joint.graph->nodes().front();
  REQUIRE(forward.outputs().size() == 4);
  CHECK(forward.ints_attribute("_tracked", {}) == std::vector<std::int64_t>{0});
  const graph::Node& backward = *joint.graph->nodes().back();
  CHECK(backward.is("TorchGradient", graph::kRekindleDomain));
  const auto& in = joint.graph->inputs();
  CHECK(backward.inputs() == std::vector<graph::Value*>{in[2], in[3], nullptr, forward.output(3), in[0]});
}

TEST_CASE("an output that PyTorch says is not differentiable stops the gradient", "[autodiff]") {
  const JointGraph joint = joint_of(R"(graph t(%x: float32[4]) {
  opset 20, torch 1
  %y: float32[4] = torch::aten.floor.default(%x) {_results = 1, _differentiable = []}
  return %y
})",
                                    "1");
  CHECK(joint.cotangent_of.empty());
}

TEST_CASE("an absent cotangent of PyTorch's is left out, not made of zeros", "[autodiff]") {
  const auto restricted = restrict_cotangents(joint_of(kSplit, "10"), flags("01"));
  REQUIRE(restricted.ok());
  verify_or_fail(*restricted);
  const graph::Node& backward = *restricted->graph->nodes().back();
  CHECK(backward.is("TorchGradient", graph::kRekindleDomain));
  CHECK(backward.input(0) == nullptr);
  CHECK(backward.input(1) == restricted->graph->inputs()[2]);
}

}  // namespace rekindle::autodiff
