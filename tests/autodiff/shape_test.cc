// Gradients of ops that move elements, as graph text.
#include "tests/autodiff/joint_text.h"

namespace rekindle::autodiff {
namespace {

TEST_CASE("reshapes go back to the shape of the input and read nothing", "[autodiff]") {
  CHECK(backward_of(graph_text("%x: float32[2, 3]",
                               "%s = Constant() {value = int64[1]{6}}\n%y: float32[6] = Reshape(%x, %s)"),
                    "1") ==
        "%d_x = rekindle::ReshapeLike(%d_y, %x)\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float32[2, 3]",
                               "%s = Constant() {value = int64[1]{0}}\n"
                               "%y: float32[1, 2, 3] = Unsqueeze(%x, %s)"),
                    "1") ==
        "%d_x = rekindle::ReshapeLike(%d_y, %x)\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float32[1, 2]", "%y: float32[2] = Squeeze(%x)"), "1") ==
        "%d_x = rekindle::ReshapeLike(%d_y, %x)\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float32[2, 3]", "%y: float32[2, 3] = Flatten(%x)"), "1") ==
        "%d_x = rekindle::ReshapeLike(%d_y, %x)\n"
        "return %d_x\n");
}

TEST_CASE("a transpose is undone by the inverse order", "[autodiff]") {
  CHECK(backward_of(
            graph_text("%x: float32[2, 3, 4]", "%y: float32[4, 2, 3] = Transpose(%x) {perm = [2, 0, 1]}"),
            "1") ==
        "%d_x = Transpose(%d_y) {perm = [1, 2, 0]}\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float32[2, 3]", "%y: float32[3, 2] = Transpose(%x)"), "1") ==
        "%d_x = Transpose(%d_y)\n"
        "return %d_x\n");
}

TEST_CASE("an expansion is summed", "[autodiff]") {
  CHECK(backward_of(graph_text("%x: float32[3, 1]",
                               "%s = Constant() {value = int64[2]{3, 4}}\n"
                               "%y: float32[3, 4] = Expand(%x, %s)"),
                    "1") ==
        "%d_x = rekindle::SumToSizeOf(%d_y, %x)\n"
        "return %d_x\n");
}

TEST_CASE("a concatenation is taken apart", "[autodiff]") {
  CHECK(
      backward_of(graph_text("%a: float32[2], %b: float32[n]", "%y: float32[m] = Concat(%a, %b) {axis = 0}"),
                  "11") ==
      "%d_a, %d_b = rekindle::ConcatGradient(%d_y, %a, %b) {axis = 0}\n"
      "return %d_a, %d_b\n");
  CHECK(
      backward_of(graph_text("%a: float32[2], %b: float32[n]", "%y: float32[m] = Concat(%a, %b) {axis = 0}"),
                  "01") ==
      "%1, %d_b = rekindle::ConcatGradient(%d_y, %a, %b) {axis = 0}\n"
      "return %d_b\n");
}

TEST_CASE("a split is joined, with zeros for the parts nobody used", "[autodiff]") {
  CHECK(backward_of(graph_text("%x: float32[6]",
                               "%s = Constant() {value = int64[3]{1, 2, 3}}\n"
                               "%p: float32[1], %q: float32[2], %r: float32[3] = Split(%x, %s)",
                               "%p, %q, %r"),
                    "1") ==
        "%d_x = Concat(%d_p, %d_q, %d_r) {axis = 0}\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float32[6]",
                               "%s = Constant() {value = int64[3]{1, 2, 3}}\n"
                               "%p: float32[1], %q: float32[2], %r: float32[3] = Split(%x, %s)",
                               "%q"),
                    "1") ==
        "%1 = rekindle::ZerosLike(%p)\n"
        "%2 = rekindle::ZerosLike(%r)\n"
        "%d_x = Concat(%1, %d_q, %2) {axis = 0}\n"
        "return %d_x\n");
}

TEST_CASE("a slice is written back", "[autodiff]") {
  CHECK(backward_of(graph_text("%x: float32[5]",
                               "%s = Constant() {value = int64[1]{1}}\n"
                               "%e = Constant() {value = int64[1]{4}}\n"
                               "%y: float32[3] = Slice(%x, %s, %e)"),
                    "1") ==
        "%d_x = rekindle::SliceGradient(%d_y, %x, %s, %e)\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float32[5, 6]",
                               "%s = Constant() {value = int64[1]{1}}\n"
                               "%e = Constant() {value = int64[1]{4}}\n"
                               "%a = Constant() {value = int64[1]{1}}\n"
                               "%t = Constant() {value = int64[1]{2}}\n"
                               "%y: float32[5, 2] = Slice(%x, %s, %e, %a, %t)"),
                    "1") ==
        "%d_x = rekindle::SliceGradient(%d_y, %x, %s, %e, %a, %t)\n"
        "return %d_x\n");
}

TEST_CASE("a tile is summed over its repeats", "[autodiff]") {
  CHECK(backward_of(graph_text("%x: float32[2, 3]",
                               "%r = Constant() {value = int64[2]{2, 4}}\n"
                               "%y: float32[4, 12] = Tile(%x, %r)"),
                    "1") ==
        "%1 = Constant() {value = int64[1]{1}}\n"
        "%2 = Shape(%x)\n"
        "%3 = Unsqueeze(%2, %1)\n"
        "%4 = Unsqueeze(%r, %1)\n"
        "%5 = Concat(%4, %3) {axis = 1}\n"
        "%6 = Constant() {value = int64[1]{-1}}\n"
        "%7 = Reshape(%5, %6)\n"
        "%8 = Reshape(%d_y, %7) {allowzero = 1}\n"
        "%9 = Constant() {value = int64[2]{0, 2}}\n"
        "%d_x = ReduceSum(%8, %9) {keepdims = 0}\n"
        "return %d_x\n");
  CHECK_THAT(error_of(graph_text("%x, %r: int64[?]", "%y = Tile(%x, %r)"), "10").message,
             Catch::Contains("the rank of its input is not known"));
}

TEST_CASE("a padding is undone by the opposite one", "[autodiff]") {
  CHECK(backward_of(graph_text("%x: float32[2, 3]",
                               "%p = Constant() {value = int64[4]{1, 0, 0, 2}}\n"
                               "%y: float32[3, 5] = Pad(%x, %p)"),
                    "1") ==
        "%1 = Neg(%p)\n"
        "%d_x = Pad(%d_y, %1)\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float32[2, 3]",
                               "%p = Constant() {value = int64[2]{1, 2}}\n"
                               "%a = Constant() {value = int64[1]{1}}\n"
                               "%y: float32[2, 6] = Pad(%x, %p, _, %a)"),
                    "1") ==
        "%1 = Neg(%p)\n"
        "%d_x = Pad(%d_y, %1, _, %a)\n"
        "return %d_x\n");
  CHECK_THAT(
      error_of(graph_text("%x: float32[4], %p: int64[2]", "%y = Pad(%x, %p) {mode = \"reflect\"}"), "10")
          .message,
      Catch::Contains("mode is \"reflect\""));
}

TEST_CASE("a triangle keeps its mask", "[autodiff]") {
  CHECK(backward_of(graph_text("%x: float32[2, 3]",
                               "%k = Constant() {value = int64[]{1}}\n"
                               "%y: float32[2, 3] = Trilu(%x, %k) {upper = 0}"),
                    "1") ==
        "%d_x = rekindle::TriluGradient(%d_y, %k) {upper = 0}\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float32[2, 3]", "%y: float32[2, 3] = Trilu(%x)"), "1") ==
        "%d_x = rekindle::TriluGradient(%d_y) {upper = 1}\n"
        "return %d_x\n");
}

}  // namespace
}  // namespace rekindle::autodiff
