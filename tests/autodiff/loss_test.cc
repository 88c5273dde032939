// Gradients of losses, as graph text.
#include "tests/autodiff/joint_text.h"

namespace rekindle::autodiff {
namespace {

TEST_CASE("cross entropy reads the scores and their logsumexp", "[autodiff]") {
  CHECK(backward_of(graph_text("%s: float32[5, 3], %t: int64[5]",
                               "%y: float32[] = rekindle::CrossEntropyLoss(%s, %t)"),
                    "10") ==
        "%d_s = rekindle::CrossEntropyLossGradient(%d_y, %s, %t, %y_1)\n"
        "return %d_s\n");
  CHECK(backward_of(graph_text("%s: float32[5, 3], %t: int64[5], %w: float32[3]",
                               "%y: float32[], %l: float32[5] = rekindle::CrossEntropyLoss(%s, %t, %w) "
                               "{ignore_index = 1, reduction = \"sum\"}"),
                    "100") ==
        "%d_s = rekindle::CrossEntropyLossGradient(%d_y, %s, %t, %l, %w) "
        "{ignore_index = 1, reduction = \"sum\"}\n"
        "return %d_s\n");
}

TEST_CASE("class weights and a used logsumexp are refused", "[autodiff]") {
  CHECK_THAT(error_of(graph_text("%s: float32[5, 3], %t: int64[5], %w: float32[3]",
                                 "%y = rekindle::CrossEntropyLoss(%s, %t, %w)"),
                      "001")
                 .message,
             Catch::Contains("its class weights need a gradient"));
  CHECK_THAT(error_of(graph_text("%s: float32[5, 3], %t: int64[5]",
                                 "%z, %l = rekindle::CrossEntropyLoss(%s, %t)\n%y = Exp(%l)"),
                      "10")
                 .message,
             Catch::Contains("its logsumexp needs a gradient"));
}

}  // namespace
}  // namespace rekindle::autodiff
