// Gradients of arithmetic and elementwise functions, as graph text.
#include "tests/autodiff/joint_text.h"

namespace rekindle::autodiff {
namespace {

TEST_CASE("both terms of a sum get the cotangent itself", "[autodiff]") {
  CHECK(backward_of(graph_text("%a: float32[2, 3], %b: float32[2, 3]", "%y: float32[2, 3] = Add(%a, %b)"),
                    "11") == "return %d_y, %d_y\n");
  CHECK(backward_of(graph_text("%a: float32[2], %b: float32[2]", "%y: float32[2] = Sub(%a, %b)"), "11") ==
        "%d_b = Neg(%d_y)\n"
        "return %d_y, %d_b\n");
  CHECK(backward_of(
            graph_text("%a: float32[2], %b: float32[], %c: float32[2]", "%y: float32[2] = Sum(%a, %b, %c)"),
            "111") ==
        "%d_b = rekindle::SumToSizeOf(%d_y, %b)\n"
        "return %d_y, %d_b, %d_y\n");
  CHECK(backward_of(graph_text("%a: float32[2], %b: float32[2]", "%y: float32[2] = Mean(%a, %b)"), "11") ==
        "%1 = Constant() {value = float32[]{2}}\n"
        "%d_a = Div(%d_y, %1)\n"
        "return %d_a, %d_a\n");
}

TEST_CASE("gradients are summed over broadcast dimensions unless the shapes are known to be equal",
          "[autodiff]") {
  CHECK(
      backward_of(graph_text("%a: float32[2, 3], %b: float32[3]", "%y: float32[2, 3] = Add(%a, %b)"), "11") ==
      "%d_b = rekindle::SumToSizeOf(%d_y, %b)\n"
      "return %d_y, %d_b\n");
  CHECK(backward_of(graph_text("%a: float32[n, 3], %b: float32[n, 3]", "%y: float32[n, 3] = Mul(%a, %b)"),
                    "11") ==
        "%d_a = Mul(%d_y, %b)\n"
        "%d_b = Mul(%d_y, %a)\n"
        "return %d_a, %d_b\n");
  CHECK(backward_of(graph_text("%a: float32[?, 3], %b: float32[?, 3]", "%y: float32[?, 3] = Add(%a, %b)"),
                    "11") ==
        "%d_a = rekindle::SumToSizeOf(%d_y, %a)\n"
        "%d_b = rekindle::SumToSizeOf(%d_y, %b)\n"
        "return %d_a, %d_b\n");
  CHECK(backward_of(graph_text("%a: float32[2, 3], %b: float32[2, 3]", "%y = Add(%a, %b)"), "10") ==
        "%d_a = rekindle::SumToSizeOf(%d_y, %a)\n"
        "return %d_a\n");
}

TEST_CASE("a product reads the other factor, a quotient its result", "[autodiff]") {
  CHECK(backward_of(graph_text("%a: float32[2], %b: float32[2]", "%y: float32[2] = Mul(%a, %b)"), "11") ==
        "%d_a = Mul(%d_y, %b)\n"
        "%d_b = Mul(%d_y, %a)\n"
        "return %d_a, %d_b\n");
  CHECK(backward_of(graph_text("%a: float32[2], %b: float32[2]", "%y: float32[2] = Div(%a, %b)"), "10") ==
        "%d_a = Div(%d_y, %b)\n"
        "return %d_a\n");
  CHECK(backward_of(graph_text("%a: float32[2], %b: float32[2]", "%y: float32[2] = Div(%a, %b)"), "01") ==
        "%1 = Div(%y, %b)\n"
        "%2 = Mul(%d_y, %1)\n"
        "%d_b = Neg(%2)\n"
        "return %d_b\n");
}

TEST_CASE("a power with a constant exponent needs no logarithm", "[autodiff]") {
  CHECK(backward_of(graph_text("%x: float32[2, 3]",
                               "%e = Constant() {value = float32[]{3}}\n%y: float32[2, 3] = Pow(%x, %e)"),
                    "1") ==
        "%1 = Constant() {value = float32[]{3}}\n"
        "%2 = Constant() {value = float32[]{2}}\n"
        "%3 = Pow(%x, %2)\n"
        "%4 = Mul(%1, %3)\n"
        "%d_x = Mul(%d_y, %4)\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float32[2, 3]",
                               "%e = Constant() {value = float32[]{2}}\n%y: float32[2, 3] = Pow(%x, %e)"),
                    "1") ==
        "%1 = Constant() {value = float32[]{2}}\n"
        "%2 = Mul(%1, %x)\n"
        "%d_x = Mul(%d_y, %2)\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float32[2, 3]",
                               "%e = Constant() {value = int64[]{1}}\n%y: float32[2, 3] = Pow(%x, %e)"),
                    "1") == "return %d_y\n");
  CHECK(backward_of(graph_text("%x: float32[2, 3]",
                               "%e = Constant() {value = float32[]{0}}\n%y: float32[2, 3] = Pow(%x, %e)"),
                    "1") ==
        "%d_x = rekindle::ZerosLike(%d_y)\n"
        "return %d_x\n");
}

TEST_CASE("a power with a tensor exponent is flat where eager says so", "[autodiff]") {
  CHECK(backward_of(graph_text("%x: float32[2], %e: float32[2]", "%y: float32[2] = Pow(%x, %e)"), "11") ==
        "%1 = Constant() {value = float32[]{1}}\n"
        "%2 = Sub(%e, %1)\n"
        "%3 = Pow(%x, %2)\n"
        "%4 = Mul(%e, %3)\n"
        "%5 = Mul(%d_y, %4)\n"
        "%6 = Constant() {value = float32[]{0}}\n"
        "%7 = Equal(%e, %6)\n"
        "%d_x = Where(%7, %6, %5)\n"
        "%8 = Constant() {value = float32[]{0}}\n"
        "%9 = Equal(%x, %8)\n"
        "%10 = Constant() {value = float32[]{0}}\n"
        "%11 = GreaterOrEqual(%e, %10)\n"
        "%12 = And(%9, %11)\n"
        "%13 = Log(%x)\n"
        "%14 = Mul(%y, %13)\n"
        "%15 = Constant() {value = float32[]{0}}\n"
        "%16 = Where(%12, %15, %14)\n"
        "%d_e = Mul(%d_y, %16)\n"
        "return %d_x, %d_e\n");
  CHECK(backward_of(graph_text("%x: float32[2], %e: int64[2]", "%y: float32[2] = Pow(%x, %e)"), "10") ==
        "%1 = CastLike(%e, %x)\n"
        "%2 = Constant() {value = float32[]{1}}\n"
        "%3 = Sub(%1, %2)\n"
        "%4 = Pow(%x, %3)\n"
        "%5 = Mul(%1, %4)\n"
        "%6 = Mul(%d_y, %5)\n"
        "%7 = Constant() {value = float32[]{0}}\n"
        "%8 = Equal(%1, %7)\n"
        "%d_x = Where(%8, %7, %6)\n"
        "return %d_x\n");
}

TEST_CASE("functions whose slope follows from the output read only that", "[autodiff]") {
  CHECK(backward_of(graph_text("%x: float32[2, 3]", "%y: float32[2, 3] = Exp(%x)"), "1") ==
        "%d_x = Mul(%d_y, %y)\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float32[2, 3]", "%y: float32[2, 3] = Sqrt(%x)"), "1") ==
        "%1 = Constant() {value = float32[]{2}}\n"
        "%2 = Mul(%1, %y)\n"
        "%d_x = Div(%d_y, %2)\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float32[2, 3]", "%y: float32[2, 3] = Reciprocal(%x)"), "1") ==
        "%1 = Neg(%d_y)\n"
        "%2 = Mul(%y, %y)\n"
        "%d_x = Mul(%1, %2)\n"
        "return %d_x\n");
}

TEST_CASE("other functions read their input", "[autodiff]") {
  CHECK(backward_of(graph_text("%x: float32[2, 3]", "%y: float32[2, 3] = Log(%x)"), "1") ==
        "%d_x = Div(%d_y, %x)\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float32[2, 3]", "%y: float32[2, 3] = Abs(%x)"), "1") ==
        "%1 = Sign(%x)\n"
        "%d_x = Mul(%d_y, %1)\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float32[2, 3]", "%y: float32[2, 3] = Sin(%x)"), "1") ==
        "%1 = Cos(%x)\n"
        "%d_x = Mul(%d_y, %1)\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float32[2, 3]", "%y: float32[2, 3] = Cos(%x)"), "1") ==
        "%1 = Sin(%x)\n"
        "%2 = Neg(%1)\n"
        "%d_x = Mul(%d_y, %2)\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float32[2, 3]", "%y: float32[2, 3] = Erf(%x)"), "1") ==
        "%1 = Mul(%x, %x)\n"
        "%2 = Neg(%1)\n"
        "%3 = Exp(%2)\n"
        "%4 = Constant() {value = float32[]{1.1283792}}\n"
        "%5 = Mul(%4, %3)\n"
        "%d_x = Mul(%5, %d_y)\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float32[2, 3]", "%y: float32[2, 3] = Neg(%x)"), "1") ==
        "%d_x = Neg(%d_y)\n"
        "return %d_x\n");
}

TEST_CASE("steps have a zero gradient, not none", "[autodiff]") {
  CHECK(backward_of(graph_text("%x: float32[2, 3]", "%y: float32[2, 3] = Floor(%x)"), "1") ==
        "%d_x = rekindle::ZerosLike(%d_y)\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float32[2, 3]", "%y: float32[2, 3] = Ceil(%x)"), "1") ==
        "%d_x = rekindle::ZerosLike(%d_y)\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float32[2, 3]", "%y: float32[2, 3] = Round(%x)"), "1") ==
        "%d_x = rekindle::ZerosLike(%d_y)\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float32[2, 3]", "%y: float32[2, 3] = Sign(%x)"), "1") ==
        "%d_x = rekindle::ZerosLike(%d_y)\n"
        "return %d_x\n");
}

TEST_CASE("a selection gives each side zeros where it was not selected", "[autodiff]") {
  CHECK(backward_of(
            graph_text("%c: bool[2], %a: float32[2], %b: float32[]", "%y: float32[2] = Where(%c, %a, %b)"),
            "011") ==
        "%1 = Constant() {value = float32[]{0}}\n"
        "%d_a = Where(%c, %d_y, %1)\n"
        "%2 = Where(%c, %1, %d_y)\n"
        "%d_b = rekindle::SumToSizeOf(%2, %b)\n"
        "return %d_a, %d_b\n");
}

TEST_CASE("a cast goes back to the dtype of the input", "[autodiff]") {
  CHECK(backward_of(graph_text("%x: float16[2]", "%y: float32[2] = Cast(%x) {to = 1}"), "1") ==
        "%d_x = Cast(%d_y) {to = 10}\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float16[2], %l: float32[]", "%y: float32[2] = CastLike(%x, %l)"), "10") ==
        "%d_x = Cast(%d_y) {to = 10}\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x", "%y = Cast(%x) {to = 1}"), "1") ==
        "%d_x = CastLike(%d_y, %x)\n"
        "return %d_x\n");
}

TEST_CASE("a scalar of unknown dtype takes the dtype of the value it meets", "[autodiff]") {
  CHECK(backward_of(graph_text("%x", "%y = Sqrt(%x)"), "1") ==
        "%1 = Constant() {value = float64[]{2}}\n"
        "%2 = CastLike(%1, %x)\n"
        "%3 = Mul(%2, %y)\n"
        "%d_x = Div(%d_y, %3)\n"
        "return %d_x\n");
}

TEST_CASE("an integer between floats stops the gradient", "[autodiff]") {
  CHECK(backward_of(graph_text("%x: float32[2, 3]",
                               "%i = Cast(%x) {to = 7}\n"
                               "%f: float32[2, 3] = Cast(%i) {to = 1}\n"
                               "%y: float32[2, 3] = Mul(%f, %x)"),
                    "1") ==
        "%d_x = Mul(%d_y, %f)\n"
        "return %d_x\n");
}

TEST_CASE("the larger one gets the cotangent of a maximum, each half of it at ties", "[autodiff]") {
  CHECK(backward_of(graph_text("%a: float32[2], %b: float32[2]", "%y: float32[2] = Max(%a, %b)"), "11") ==
        "%1 = Constant() {value = float32[]{0}}\n"
        "%2 = Constant() {value = float32[]{2}}\n"
        "%3 = Div(%d_y, %2)\n"
        "%4 = Equal(%a, %b)\n"
        "%5 = Where(%4, %3, %d_y)\n"
        "%6 = Less(%a, %b)\n"
        "%d_a = Where(%6, %1, %5)\n"
        "%7 = Less(%b, %a)\n"
        "%d_b = Where(%7, %1, %5)\n"
        "return %d_a, %d_b\n");
  CHECK(backward_of(graph_text("%a: float32[2], %b: float32[2]", "%y: float32[2] = Min(%a, %b)"), "01") ==
        "%1 = Constant() {value = float32[]{0}}\n"
        "%2 = Constant() {value = float32[]{2}}\n"
        "%3 = Div(%d_y, %2)\n"
        "%4 = Equal(%a, %b)\n"
        "%5 = Where(%4, %3, %d_y)\n"
        "%6 = Greater(%b, %a)\n"
        "%d_b = Where(%6, %1, %5)\n"
        "return %d_b\n");
  CHECK(backward_of(graph_text("%a: float32[2]", "%y: float32[2] = Max(%a)"), "1") == "return %d_y\n");
  CHECK_THAT(error_of(graph_text("%a: float32[2]", "%y: float32[2] = Max(%a, %a, %a)"), "1").message,
             Catch::Contains("it has more than two inputs"));
}

TEST_CASE("a clip passes the cotangent inside its bounds, the bounds included", "[autodiff]") {
  CHECK(backward_of(
            graph_text("%x: float32[2], %l: float32[], %h: float32[]", "%y: float32[2] = Clip(%x, %l, %h)"),
            "100") ==
        "%1 = GreaterOrEqual(%x, %l)\n"
        "%2 = LessOrEqual(%x, %h)\n"
        "%3 = And(%1, %2)\n"
        "%4 = Constant() {value = float32[]{0}}\n"
        "%d_x = Where(%3, %d_y, %4)\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float32[2], %h: float32[]", "%y: float32[2] = Clip(%x, _, %h)"), "10") ==
        "%1 = LessOrEqual(%x, %h)\n"
        "%2 = Constant() {value = float32[]{0}}\n"
        "%d_x = Where(%1, %d_y, %2)\n"
        "return %d_x\n");
  CHECK(backward_of(graph_text("%x: float32[2]", "%y: float32[2] = Clip(%x)"), "1") == "return %d_y\n");
}

TEST_CASE("the bounds of a clip get what the data does not", "[autodiff]") {
  CHECK(backward_of(
            graph_text("%x: float32[2], %l: float32[], %h: float32[]", "%y: float32[2] = Clip(%x, %l, %h)"),
            "011") ==
        "%1 = Constant() {value = float32[]{0}}\n"
        "%2 = Less(%x, %l)\n"
        "%3 = Less(%l, %h)\n"
        "%4 = And(%2, %3)\n"
        "%5 = Where(%4, %d_y, %1)\n"
        "%6 = Greater(%x, %h)\n"
        "%7 = Less(%h, %l)\n"
        "%8 = Or(%6, %7)\n"
        "%9 = Where(%8, %d_y, %1)\n"
        "%d_l = rekindle::SumToSizeOf(%5, %l)\n"
        "%d_h = rekindle::SumToSizeOf(%9, %h)\n"
        "return %d_l, %d_h\n");
  CHECK(backward_of(graph_text("%x: float32[2], %l: float32[]", "%y: float32[2] = Clip(%x, %l)"), "01") ==
        "%1 = Constant() {value = float32[]{0}}\n"
        "%2 = Less(%x, %l)\n"
        "%3 = Where(%2, %d_y, %1)\n"
        "%d_l = rekindle::SumToSizeOf(%3, %l)\n"
        "return %d_l\n");
}

}  // namespace
}  // namespace rekindle::autodiff
