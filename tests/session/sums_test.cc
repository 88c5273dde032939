// Gradients that are added to a sum so far, in its memory where it is not needed any more.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "tests/session/session_text.h"

namespace {

using rekindle::session::session_of;
using Tensors = std::vector<at::Tensor>;

// y = 2 b, to which the op adds what it makes of d; and the same where 2 b is a result as well.
void check(const std::string& types, const std::string& constants, const std::string& op, const Tensors& in,
           const at::Tensor& expected) {
  for (const char* results : {"%y", "%y, %s"}) {
    CAPTURE(op, results);
    const std::string text = "graph g(" + types + ") {\n  opset 20, rekindle 1\n" + constants +
                             "  %s: float32[4, 3] = Add(%b, %b)\n  %y: float32[4, 3] = " + op +
                             "\n  return " + results + "\n}";
    const auto session = session_of(text, std::vector<bool>(in.size(), false));
    for (int run = 0; run < 2; ++run) {
      const Tensors found = session->forward(in, false);
      CHECK(at::equal(found[0], expected));
      if (found.size() == 2) CHECK(at::equal(found[1], in[1] * 2));
    }
  }
}

Tensors inputs(at::IntArrayRef sizes) {
  at::manual_seed(5);
  return {at::randn(sizes), at::randn({4, 3})};
}

}  // namespace

TEST_CASE("the gradient of a row is added to a sum", "[session]") {
  const Tensors in = inputs({3});
  at::Tensor expected = in[1] * 2;
  expected[-2] += in[0];
  check("%d: float32[3], %b: float32[4, 3]", "  %i = Constant() {value = int64[]{-2}}\n",
        "rekindle::GatherGradient(%d, %i, %b, %s)", in, expected);
}

TEST_CASE("gradients of rows, one of them twice, are added to a sum", "[session]") {
  Tensors in = inputs({3, 3});
  in.push_back(at::tensor({1, -1, 1}, at::kLong));
  const at::Tensor rows = at::zeros({4, 3}).index_add(0, at::tensor({1, 3, 1}, at::kLong), in[0]);
  check("%d: float32[3, 3], %b: float32[4, 3], %i: int64[3]", "", "rekindle::GatherGradient(%d, %i, %b, %s)",
        in, in[1] * 2 + rows);
}

TEST_CASE("the gradient of a slice is added to a sum", "[session]") {
  const Tensors in = inputs({2, 3});
  at::Tensor expected = in[1] * 2;
  expected.slice(0, 1, 4, 2) += in[0];
  const std::string places =
      "  %f = Constant() {value = int64[1]{1}}\n  %e = Constant() {value = int64[1]{9}}\n"
      "  %a = Constant() {value = int64[1]{0}}\n  %t = Constant() {value = int64[1]{2}}\n";
  check("%d: float32[2, 3], %b: float32[4, 3]", places, "rekindle::SliceGradient(%d, %b, %f, %e, %a, %t, %s)",
        in, expected);
}

TEST_CASE("the gradient of a slice that is read backwards is added to a sum", "[session]") {
  const Tensors in = inputs({2, 3});
  at::Tensor expected = in[1] * 2;
  expected[3] += in[0][0];
  expected[1] += in[0][1];
  const std::string places =
      "  %f = Constant() {value = int64[1]{-1}}\n  %e = Constant() {value = int64[1]{0}}\n"
      "  %a = Constant() {value = int64[1]{0}}\n  %t = Constant() {value = int64[1]{-2}}\n";
  check("%d: float32[2, 3], %b: float32[4, 3]", places, "rekindle::SliceGradient(%d, %b, %f, %e, %a, %t, %s)",
        in, expected);
}
