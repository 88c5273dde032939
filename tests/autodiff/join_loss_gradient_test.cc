// The gradient of scores that a caller gets as well is joined with those of the product that made them.
#include "src/autodiff/join_loss_gradient.h"

#include "tests/autodiff/joint_text.h"

namespace rekindle::autodiff {
namespace {

const char* const kInputs = "%x: float32[b, s, 3], %w: float32[5, 3], %c: float32[5], %t: int64[n]";
const char* const kModel =
    "%z: float32[b, s, 5] = rekindle::Linear(%x, %w, %c)\n%k = Constant() {value = int64[2]{-1, 5}}\n"
    "%r: float32[n, 5] = Reshape(%z, %k)\n"
    "%y: float32[], %l: float32[n] = rekindle::CrossEntropyLoss(%r, %t) {ignore_index = 1}";

// The backward of the loss alone, joined. `present`: of the cotangents of `results`.
std::string joined(const std::string& inputs, const std::string& body, const std::string& results,
                   std::string_view needs, std::string_view present) {
  auto joint = restrict_cotangents(joint_of(graph_text(inputs, body, results), needs), flags(present));
  if (!joint.ok()) FAIL(joint.error().message);
  join_loss_gradient(*joint);
  verify_or_fail(*joint);
  const std::string text = body_of(*joint);
  return text.substr(text.find("CrossEntropyLoss("));
}

TEST_CASE("the gradient of scores that are returned is joined", "[autodiff]") {
  const std::string expected =
      "CrossEntropyLoss(%r, %t) {ignore_index = 1}\n"
      "%d_x, %d_w, %d_c = rekindle::LinearCrossEntropyGradient(%d_y, %r, %t, %l, %x, %w) "
      "{ignore_index = 1}\n"
      "return %y, %z, %d_x, %d_w, %d_c\n";
  CHECK(joined(kInputs, kModel, "%y, %z", "1110", "10") == expected);
}

TEST_CASE("a joined gradient has class weights, and no bias where there is none", "[autodiff]") {
  const std::string text = joined("%x: float32[4, 3], %w: float32[5, 3], %t: int64[4], %p: float32[5]",
                                  "%z: float32[4, 5] = rekindle::Linear(%x, %w)\n"
                                  "%y: float32[], %l: float32[4] = rekindle::CrossEntropyLoss(%z, %t, %p)",
                                  "%y, %z", "1100", "10");
  CHECK(text ==
        "CrossEntropyLoss(%z, %t, %p)\n"
        "%d_x, %d_w = rekindle::LinearCrossEntropyGradient(%d_y, %z, %t, %l, %x, %w, %p)\n"
        "return %y, %z, %d_x, %d_w\n");
}

TEST_CASE("what cannot be joined stays", "[autodiff]") {
  const auto stays = [](const std::string& text) {
    return text.find("LinearCrossEntropyGradient") == std::string::npos &&
           text.find("CrossEntropyLossGradient") != std::string::npos;
  };
  CHECK(stays(joined(kInputs, kModel, "%y", "1110", "1")));       // their memory is free for the gradient
  CHECK(stays(joined(kInputs, kModel, "%y, %z", "1110", "11")));  // they have another gradient
  CHECK(stays(joined(kInputs, kModel, "%y, %z", "0110", "10")));
  CHECK(stays(joined(kInputs, kModel, "%y, %z", "1010", "10")));
  const std::string tanh = std::string(kModel) + "\n%u: float32[n, 5] = Tanh(%r)";
  CHECK(stays(joined(kInputs, tanh, "%y, %u, %z", "1110", "110")));  // two readers make one gradient
}

TEST_CASE("a bias that is a single number is no bias of the layer", "[autodiff]") {
  const std::string text = joined("%x: float32[4, 3], %w: float32[5, 3], %c: float32[1], %t: int64[4]",
                                  "%u: float32[4, 5] = rekindle::Linear(%x, %w)\n"
                                  "%z: float32[4, 5] = Add(%u, %c)\n"
                                  "%y: float32[], %l: float32[4] = rekindle::CrossEntropyLoss(%z, %t)",
                                  "%y, %z", "1110", "10");
  CHECK_THAT(text, !Catch::Contains("LinearCrossEntropyGradient"));
}

TEST_CASE("gradients of two layers whose results are added are not joined", "[autodiff]") {
  const auto of_widths = [](const std::string& x, const std::string& u) {
    return joined(
        "%x: float32[4, " + x + "], %w: float32[5, " + x + "], %u: float32[4, " + u + "], %v: float32[5, " +
            u + "], %t: int64[4]",
        "%a: float32[4, 5] = rekindle::Linear(%x, %w)\n%c: float32[4, 5] = rekindle::Linear(%u, %v)\n"
        "%z: float32[4, 5] = Add(%a, %c)\n"
        "%y: float32[], %l: float32[4] = rekindle::CrossEntropyLoss(%z, %t)",
        "%y, %z", "10010", "10");
  };
  CHECK_THAT(of_widths("3", "2"), !Catch::Contains("LinearCrossEntropyGradient"));
  CHECK_THAT(of_widths("3", "3"), Catch::Contains("LinearCrossEntropyGradient(%d_y, %z, %t, %l, %u, %w)"));
}

TEST_CASE("a loss over more dimensions than two stays", "[autodiff]") {
  const std::string text = joined("%x: float32[4, 7, 3], %w: float32[5, 3], %t: int64[4, 5]",
                                  "%z: float32[4, 7, 5] = rekindle::Linear(%x, %w)\n"
                                  "%y: float32[], %l: float32[4, 5] = rekindle::CrossEntropyLoss(%z, %t)",
                                  "%y, %z", "110", "10");
  CHECK(text.find("LinearCrossEntropyGradient") == std::string::npos);
}

}  // namespace
}  // namespace rekindle::autodiff
