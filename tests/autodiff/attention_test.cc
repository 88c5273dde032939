// Gradients of attention, as graph text.
#include "tests/autodiff/joint_text.h"

namespace rekindle::autodiff {
namespace {

TEST_CASE("attention reads its output and logsumexp", "[autodiff]") {
  CHECK(backward_of(
            graph_text(
                "%q: float32[2, 3, 4, 5], %k: float32[2, 3, 6, 5], %v: float32[2, 3, 6, 5]",
                "%y: float32[2, 3, 4, 5] = rekindle::ScaledDotProductAttention(%q, %k, %v) {is_causal = 1}"),
            "111") ==
        "%d_q, %d_k, %d_v = rekindle::ScaledDotProductAttentionGradient(%d_y, %q, %k, %v, %y, %y_1) "
        "{is_causal = 1}\n"
        "return %d_q, %d_k, %d_v\n");
  CHECK(backward_of(
            graph_text(
                "%q: float32[2, 3, 4, 5], %k: float32[2, 3, 6, 5], %v: float32[2, 3, 6, 5], %m: bool[4, 6]",
                "%y: float32[2, 3, 4, 5], %l = rekindle::ScaledDotProductAttention(%q, %k, %v, %m) "
                "{scale = 0.5}"),
            "1000") ==
        "%d_q, %1, %2 = rekindle::ScaledDotProductAttentionGradient(%d_y, %q, %k, %v, %y, %l, %m) "
        "{scale = 0.5}\n"
        "return %d_q\n");
}

TEST_CASE("a mask that needs a gradient is refused", "[autodiff]") {
  CHECK_THAT(
      error_of(
          graph_text(
              "%q: float32[2, 3, 4, 5], %k: float32[2, 3, 6, 5], %v: float32[2, 3, 6, 5], %m: float32[4, 6]",
              "%y = rekindle::ScaledDotProductAttention(%q, %k, %v, %m)"),
          "0001")
          .message,
      Catch::Contains("its mask needs a gradient"));
}

}  // namespace
}  // namespace rekindle::autodiff
