// Operators of PyTorch's whose gradients are nodes of the graph, without a tape.
#include "tests/autodiff/joint_text.h"

namespace rekindle::autodiff {
namespace {

std::string convolution(const std::string& attributes) {
  return R"(graph t(%x: float32[2, 3, 8, 8], %w: float32[4, 3, 3, 3], %b: float32[4]) {
  opset 20, rekindle 1, torch 1
  %y: float32[2, 4, 8, 8] = torch::aten.convolution.default(%x, %w, %b) {)" +
         attributes + R"(stride = [1, 1], padding = [1, 1], dilation = [1, 1], transposed = 0,
    output_padding = [0, 0], groups = 1, _results = 1, _differentiable = [0]}
  return %y
})";
}

bool has_tape(const JointGraph& joint) {
  return std::ranges::any_of(joint.graph->nodes(), [](const auto& node) {
    return node->is("TorchGradient", graph::kRekindleDomain);
  });
}

}  // namespace

TEST_CASE("a convolution has a gradient node with an output per gradient that is wanted", "[autodiff]") {
  const JointGraph joint = joint_of(convolution(""), "011");
  CHECK_FALSE(has_tape(joint));
  const graph::Node& backward = *joint.graph->nodes().back();
  CHECK(backward.is("ConvolutionGradient", graph::kRekindleDomain));
  CHECK(backward.ints_attribute("wanted", {}) == std::vector<std::int64_t>{0, 1, 1});
  CHECK(backward.ints_attribute("padding", {}) == std::vector<std::int64_t>{1, 1});
  CHECK(backward.outputs().size() == 2);
  CHECK(backward.input(1) == joint.graph->inputs()[0]);
}

TEST_CASE("a convolution whose numbers the graph computes keeps its tape", "[autodiff]") {
  CHECK(has_tape(joint_of(convolution("_computed = [3], "), "111")));
}

TEST_CASE("a batch norm in training reads its batch's statistics, another one keeps its tape", "[autodiff]") {
  const auto text = [](const char* training) {
    return std::string(
               R"(graph t(%x: float32[4, 3], %s: float32[3], %b: float32[3], %m: float32[3], %v: float32[3]) {
  opset 20, rekindle 1, torch 1
  %y: float32[4, 3], %a: float32[3], %i: float32[3], %n: float32[3], %o: float32[3] =
    torch::aten._native_batch_norm_legit_functional.default(%x, %s, %b, %m, %v) {training = )") +
           training +
           R"(, momentum = float64[]{0.1}, eps = float64[]{1e-5}, _results = 5, _differentiable = [0]}
  return %y
})";
  };
  const JointGraph joint = joint_of(text("1"), "11100");
  CHECK_FALSE(has_tape(joint));
  const graph::Node& forward = *joint.graph->nodes().front();
  const graph::Node& backward = *joint.graph->nodes().back();
  CHECK(backward.is("BatchNormGradient", graph::kRekindleDomain));
  CHECK(backward.input(2) == forward.output(1));
  CHECK(backward.input(3) == forward.output(2));
  CHECK(backward.outputs().size() == 3);
  CHECK(has_tape(joint_of(text("0"), "11100")));
}

}  // namespace rekindle::autodiff
