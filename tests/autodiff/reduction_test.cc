// Gradients of reductions, as graph text.
#include "tests/autodiff/joint_text.h"

namespace rekindle::autodiff {
namespace {

TEST_CASE("sums and means spread the cotangent and read no values", "[autodiff]") {
  CHECK(backward_of(graph_text("%x: float32[2, 3, 4]",
                               "%a = Constant() {value = int64[2]{1, -1}}\n"
                               "%y: float32[2] = ReduceSum(%x, %a) {keepdims = 0}"),
                    "1") ==
        "%d_x = rekindle::SumGradient(%d_y, %x) {axes = [1, -1], keepdims = 0}\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float32[2, 3]", "%y: float32[1, 1] = ReduceMean(%x)"), "1") ==
        "%d_x = rekindle::MeanGradient(%d_y, %x) {keepdims = 1}\n"
        "return %d_x\n");
  CHECK(backward_of(
            graph_text("%x: float32[2, 3]", "%y: float32[2, 3] = ReduceSum(%x) {noop_with_empty_axes = 1}"),
            "1") == "return %d_y\n");
  CHECK_THAT(error_of(graph_text("%x: float32[2, 3], %a: int64[1]", "%y = ReduceSum(%x, %a)"), "10").message,
             Catch::Contains("its axes are not constant"));
}

TEST_CASE("an extremum is shared by the elements that attain it", "[autodiff]") {
  CHECK(backward_of(graph_text("%x: float32[2, 3, 4]",
                               "%a = Constant() {value = int64[1]{1}}\n"
                               "%y: float32[2, 4] = ReduceMax(%x, %a) {keepdims = 0}"),
                    "1") ==
        "%1 = Constant() {value = int64[1]{1}}\n"
        "%2 = Unsqueeze(%y, %1)\n"
        "%3 = Constant() {value = int64[1]{1}}\n"
        "%4 = Unsqueeze(%d_y, %3)\n"
        "%5 = Equal(%x, %2)\n"
        "%6 = CastLike(%5, %x)\n"
        "%7 = Constant() {value = int64[1]{1}}\n"
        "%8 = ReduceSum(%6, %7) {keepdims = 1, noop_with_empty_axes = 1}\n"
        "%9 = Mul(%4, %6)\n"
        "%d_x = Div(%9, %8)\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float32[2, 3]", "%y: float32[1, 1] = ReduceMin(%x)"), "1") ==
        "%1 = Equal(%x, %y)\n"
        "%2 = CastLike(%1, %x)\n"
        "%3 = ReduceSum(%2) {keepdims = 1, noop_with_empty_axes = 0}\n"
        "%4 = Mul(%d_y, %2)\n"
        "%d_x = Div(%4, %3)\n"
        "return %d_x\n");
}

TEST_CASE("softmax reads its output", "[autodiff]") {
  CHECK(backward_of(graph_text("%x: float32[2, 3]", "%y: float32[2, 3] = Softmax(%x)"), "1") ==
        "%d_x = rekindle::SoftmaxGradient(%d_y, %y) {axis = -1}\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float32[2, 3]", "%y: float32[2, 3] = LogSoftmax(%x) {axis = 0}"), "1") ==
        "%d_x = rekindle::LogSoftmaxGradient(%d_y, %y) {axis = 0}\n"
        "return %d_x\n");
}

TEST_CASE("a cumulative sum is reversed", "[autodiff]") {
  CHECK(backward_of(graph_text("%x: float32[2, 3]",
                               "%a = Constant() {value = int64[]{1}}\n"
                               "%y: float32[2, 3] = CumSum(%x, %a) {exclusive = 1}"),
                    "1") ==
        "%d_x = rekindle::CumSumGradient(%d_y, %a) {exclusive = 1, reverse = 0}\n"
        "return %d_x\n");
}

}  // namespace
}  // namespace rekindle::autodiff
