// Gradients of ops that draw random numbers, as graph text.
#include "tests/autodiff/joint_text.h"

namespace rekindle::autodiff {
namespace {

TEST_CASE("dropout reads its mask, which is added where the node lacks it", "[autodiff]") {
  CHECK(backward_of(graph_text("%x: float32[2, 3]",
                               "%t = Constant() {value = bool[]{true}}\n"
                               "%r = Constant() {value = float32[]{0.25}}\n"
                               "%y: float32[2, 3] = Dropout(%x, %r, %t)"),
                    "1") ==
        "%d_x = rekindle::DropoutGradient(%d_y, %y_1, %r)\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float32[2, 3]",
                               "%t = Constant() {value = bool[]{true}}\n"
                               "%r = Constant() {value = float32[]{0.25}}\n"
                               "%y: float32[2, 3], %m = Dropout(%x, %r, %t)"),
                    "1") ==
        "%d_x = rekindle::DropoutGradient(%d_y, %m, %r)\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float32[2, 3]",
                               "%t = Constant() {value = bool[]{true}}\n"
                               "%y: float32[2, 3] = Dropout(%x, _, %t)"),
                    "1") ==
        "%1 = Constant() {value = float32[]{0.5}}\n"
        "%d_x = rekindle::DropoutGradient(%d_y, %y_1, %1)\n"
        "return %d_x\n");
}

TEST_CASE("dropout outside training is the identity", "[autodiff]") {
  CHECK(backward_of(graph_text("%x: float32[2, 3]", "%y: float32[2, 3] = Dropout(%x)"), "1") ==
        "return %d_y\n");
  CHECK(backward_of(graph_text("%x: float32[2, 3]",
                               "%t = Constant() {value = bool[]{false}}\n"
                               "%r = Constant() {value = float32[]{0.25}}\n"
                               "%y: float32[2, 3] = Dropout(%x, %r, %t)"),
                    "1") == "return %d_y\n");
}

TEST_CASE("dropout with a training mode that is only known at run time is refused", "[autodiff]") {
  CHECK_THAT(
      error_of(graph_text("%x: float32[2], %r: float32[], %t: bool[]", "%y = Dropout(%x, %r, %t)"), "100")
          .message,
      Catch::Contains("its training_mode is not constant"));
}

}  // namespace
}  // namespace rekindle::autodiff
