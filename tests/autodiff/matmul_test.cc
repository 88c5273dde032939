// Gradients of matrix products, as graph text.
#include "tests/autodiff/joint_text.h"

namespace rekindle::autodiff {
namespace {

TEST_CASE("two matrices", "[autodiff]") {
  CHECK(backward_of(graph_text("%a: float32[2, 3], %b: float32[3, 4]", "%y: float32[2, 4] = MatMul(%a, %b)"),
                    "11") ==
        "%1 = Transpose(%a) {perm = [1, 0]}\n"
        "%d_b = MatMul(%1, %d_y)\n"
        "%2 = Transpose(%b) {perm = [1, 0]}\n"
        "%d_a = MatMul(%d_y, %2)\n"
        "return %d_a, %d_b\n");
}

TEST_CASE("a batch times one matrix sums over the batch inside the product", "[autodiff]") {
  CHECK(backward_of(
            graph_text("%a: float32[b, 2, 3], %b: float32[3, 4]", "%y: float32[b, 2, 4] = MatMul(%a, %b)"),
            "11") ==
        "%d_b = rekindle::LinearWeightGradient(%a, %d_y)\n"
        "%1 = Transpose(%b) {perm = [1, 0]}\n"
        "%d_a = MatMul(%d_y, %1)\n"
        "return %d_a, %d_b\n");
  CHECK(backward_of(
            graph_text("%a: float32[2, 3], %b: float32[5, 3, 4]", "%y: float32[5, 2, 4] = MatMul(%a, %b)"),
            "11") ==
        "%1 = Transpose(%b) {perm = [0, 2, 1]}\n"
        "%2 = MatMul(%d_y, %1)\n"
        "%3 = Transpose(%a) {perm = [1, 0]}\n"
        "%d_b = MatMul(%3, %d_y)\n"
        "%d_a = rekindle::SumToSizeOf(%2, %a)\n"
        "return %d_a, %d_b\n");
}

TEST_CASE("equal batches need no sum, broadcast ones do", "[autodiff]") {
  CHECK(backward_of(graph_text("%a: float32[b, h, 2, 3], %b: float32[b, h, 3, 4]",
                               "%y: float32[b, h, 2, 4] = MatMul(%a, %b)"),
                    "11") ==
        "%1 = Transpose(%b) {perm = [0, 1, 3, 2]}\n"
        "%d_a = MatMul(%d_y, %1)\n"
        "%2 = Transpose(%a) {perm = [0, 1, 3, 2]}\n"
        "%d_b = MatMul(%2, %d_y)\n"
        "return %d_a, %d_b\n");
  CHECK(backward_of(graph_text("%a: float32[6, 1, 2, 3], %b: float32[5, 3, 4]",
                               "%y: float32[6, 5, 2, 4] = MatMul(%a, %b)"),
                    "11") ==
        "%1 = Transpose(%b) {perm = [0, 2, 1]}\n"
        "%2 = MatMul(%d_y, %1)\n"
        "%3 = Transpose(%a) {perm = [0, 1, 3, 2]}\n"
        "%4 = MatMul(%3, %d_y)\n"
        "%d_a = rekindle::SumToSizeOf(%2, %a)\n"
        "%d_b = rekindle::SumToSizeOf(%4, %b)\n"
        "return %d_a, %d_b\n");
}

TEST_CASE("vectors", "[autodiff]") {
  CHECK(backward_of(graph_text("%a: float32[3], %b: float32[3]", "%y: float32[] = MatMul(%a, %b)"), "11") ==
        "%d_a = Mul(%d_y, %b)\n"
        "%d_b = Mul(%d_y, %a)\n"
        "return %d_a, %d_b\n");
  CHECK(
      backward_of(graph_text("%a: float32[3], %b: float32[3, 4]", "%y: float32[4] = MatMul(%a, %b)"), "11") ==
      "%1 = Constant() {value = int64[1]{-2}}\n"
      "%2 = Unsqueeze(%d_y, %1)\n"
      "%3 = Transpose(%b) {perm = [1, 0]}\n"
      "%4 = MatMul(%2, %3)\n"
      "%5 = Constant() {value = int64[1]{1}}\n"
      "%6 = Unsqueeze(%a, %5)\n"
      "%d_b = MatMul(%6, %2)\n"
      "%d_a = rekindle::SumToSizeOf(%4, %a)\n"
      "return %d_a, %d_b\n");
  CHECK(backward_of(graph_text("%a: float32[5, 2, 3], %b: float32[3]", "%y: float32[5, 2] = MatMul(%a, %b)"),
                    "11") ==
        "%1 = Constant() {value = int64[1]{-1}}\n"
        "%2 = Unsqueeze(%d_y, %1)\n"
        "%d_a = Mul(%2, %b)\n"
        "%3 = rekindle::LinearWeightGradient(%2, %a)\n"
        "%d_b = rekindle::ReshapeLike(%3, %b)\n"
        "return %d_a, %d_b\n");
}

TEST_CASE("a product of unknown rank is refused", "[autodiff]") {
  CHECK_THAT(error_of(graph_text("%a, %b: float32[3, 4]", "%y = MatMul(%a, %b)"), "01").message,
             Catch::Contains("the ranks of its inputs are not known"));
}

TEST_CASE("Gemm transposes by its attributes", "[autodiff]") {
  CHECK(backward_of(graph_text("%a: float32[2, 3], %b: float32[3, 4], %c: float32[4]",
                               "%y: float32[2, 4] = Gemm(%a, %b, %c)"),
                    "111") ==
        "%d_b = Gemm(%a, %d_y) {alpha = 1.0, transA = 1, transB = 0}\n"
        "%d_a = Gemm(%d_y, %b) {alpha = 1.0, transA = 0, transB = 1}\n"
        "%d_c = rekindle::SumToSizeOf(%d_y, %c)\n"
        "return %d_a, %d_b, %d_c\n");
  CHECK(backward_of(
            graph_text(
                "%a: float32[3, 2], %b: float32[4, 3], %c: float32[2, 4]",
                "%y: float32[2, 4] = Gemm(%a, %b, %c) {alpha = 0.5, beta = 2.0, transA = 1, transB = 1}"),
            "111") ==
        "%d_b = Gemm(%d_y, %a) {alpha = 0.5, transA = 1, transB = 1}\n"
        "%d_a = Gemm(%b, %d_y) {alpha = 0.5, transA = 1, transB = 1}\n"
        "%1 = Constant() {value = float32[]{2}}\n"
        "%d_c = Mul(%d_y, %1)\n"
        "return %d_a, %d_b, %d_c\n");
}

TEST_CASE("Linear", "[autodiff]") {
  CHECK(backward_of(graph_text("%x: float32[b, t, 3], %w: float32[4, 3], %c: float32[4]",
                               "%y: float32[b, t, 4] = rekindle::Linear(%x, %w, %c)"),
                    "111") ==
        "%d_w = rekindle::LinearWeightGradient(%d_y, %x)\n"
        "%d_x = MatMul(%d_y, %w)\n"
        "%d_c = rekindle::SumToSizeOf(%d_y, %c)\n"
        "return %d_x, %d_w, %d_c\n");
  CHECK(backward_of(graph_text("%x: float32[2, 3], %w: float32[4, 3]",
                               "%y: float32[2, 4] = rekindle::Linear(%x, %w)"),
                    "01") ==
        "%d_w = rekindle::LinearWeightGradient(%d_y, %x)\n"
        "return %d_w\n");
}

}  // namespace
}  // namespace rekindle::autodiff
