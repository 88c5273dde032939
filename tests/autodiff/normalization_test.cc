// Gradients of normalizations, as graph text.
#include "tests/autodiff/joint_text.h"

namespace rekindle::autodiff {
namespace {

TEST_CASE("layer normalization reads its own statistics, which are added where the node lacks them",
          "[autodiff]") {
  CHECK(backward_of(graph_text("%x: float32[2, 4], %w: float32[4], %b: float32[4]",
                               "%y: float32[2, 4] = LayerNormalization(%x, %w, %b)"),
                    "111") ==
        "%d_x, %d_w, %d_b = rekindle::LayerNormalizationGradient(%d_y, %x, %y_1, %y_2, %w, %b) {axis = -1}\n"
        "return %d_x, %d_w, %d_b\n");
  CHECK(backward_of(graph_text("%x: float32[2, 4], %w: float32[4]",
                               "%y: float32[2, 4], %m, %i = LayerNormalization(%x, %w) {axis = 1}"),
                    "11") ==
        "%d_x, %d_w = rekindle::LayerNormalizationGradient(%d_y, %x, %m, %i, %w) {axis = 1}\n"
        "return %d_x, %d_w\n");
}

TEST_CASE("a cotangent of the statistics is refused", "[autodiff]") {
  CHECK_THAT(error_of(graph_text("%x: float32[2, 4], %w: float32[4]",
                                 "%z, %m, %i = LayerNormalization(%x, %w)\n%y = Exp(%m)"),
                      "11")
                 .message,
             Catch::Contains("its mean or deviation needs a gradient"));
}

}  // namespace
}  // namespace rekindle::autodiff
