// Gradients of activation functions, as graph text.
#include "tests/autodiff/joint_text.h"

namespace rekindle::autodiff {
namespace {

TEST_CASE("activations with an op of their own read their output where that is enough", "[autodiff]") {
  CHECK(backward_of(graph_text("%x: float32[2, 3]", "%y: float32[2, 3] = Relu(%x)"), "1") ==
        "%d_x = rekindle::ReluGradient(%d_y, %y)\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float32[2, 3]", "%y: float32[2, 3] = Tanh(%x)"), "1") ==
        "%d_x = rekindle::TanhGradient(%d_y, %y)\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float32[2, 3]", "%y: float32[2, 3] = Sigmoid(%x)"), "1") ==
        "%d_x = rekindle::SigmoidGradient(%d_y, %y)\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float32[2, 3]", "%y: float32[2, 3] = rekindle::Silu(%x)"), "1") ==
        "%d_x = rekindle::SiluGradient(%d_y, %x)\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float32[2, 3]", "%y: float32[2, 3] = Gelu(%x)"), "1") ==
        "%d_x = rekindle::GeluGradient(%d_y, %x) {approximate = \"none\"}\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float32[2, 3]", "%y: float32[2, 3] = Gelu(%x) {approximate = \"tanh\"}"),
                    "1") ==
        "%d_x = rekindle::GeluGradient(%d_y, %x) {approximate = \"tanh\"}\n"
        "return %d_x\n");
}

TEST_CASE("a leaky relu reads its output unless the slope is negative", "[autodiff]") {
  CHECK(
      backward_of(graph_text("%x: float32[2, 3]", "%y: float32[2, 3] = LeakyRelu(%x) {alpha = 0.2}"), "1") ==
      "%1 = Constant() {value = float32[]{0}}\n"
      "%2 = Greater(%y, %1)\n"
      "%3 = Constant() {value = float32[]{0.2}}\n"
      "%4 = Mul(%d_y, %3)\n"
      "%d_x = Where(%2, %d_y, %4)\n"
      "return %d_x\n");
  CHECK(
      backward_of(graph_text("%x: float32[2, 3]", "%y: float32[2, 3] = LeakyRelu(%x) {alpha = -0.5}"), "1") ==
      "%1 = Constant() {value = float32[]{0}}\n"
      "%2 = Greater(%x, %1)\n"
      "%3 = Constant() {value = float32[]{-0.5}}\n"
      "%4 = Mul(%d_y, %3)\n"
      "%d_x = Where(%2, %d_y, %4)\n"
      "return %d_x\n");
}

TEST_CASE("softplus and hardswish use ONNX ops", "[autodiff]") {
  CHECK(backward_of(graph_text("%x: float32[2, 3]", "%y: float32[2, 3] = Softplus(%x)"), "1") ==
        "%1 = Sigmoid(%x)\n"
        "%d_x = Mul(%d_y, %1)\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float32[2, 3]", "%y: float32[2, 3] = HardSwish(%x)"), "1") ==
        "%1 = Constant() {value = float32[]{3}}\n"
        "%2 = Div(%x, %1)\n"
        "%3 = Constant() {value = float32[]{0.5}}\n"
        "%4 = Add(%2, %3)\n"
        "%5 = Constant() {value = float32[]{3}}\n"
        "%6 = Less(%x, %5)\n"
        "%7 = Mul(%d_y, %4)\n"
        "%8 = Where(%6, %7, %d_y)\n"
        "%9 = Constant() {value = float32[]{-3}}\n"
        "%10 = LessOrEqual(%x, %9)\n"
        "%11 = Constant() {value = float32[]{0}}\n"
        "%d_x = Where(%10, %11, %8)\n"
        "return %d_x\n");
}

}  // namespace
}  // namespace rekindle::autodiff
