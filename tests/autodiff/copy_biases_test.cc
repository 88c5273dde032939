// A normalization whose result the backward reads has a copy of its bias.
#include "src/autodiff/copy_biases.h"

#include "tests/autodiff/joint_text.h"

namespace rekindle::autodiff {
namespace {

const std::string kNormalized =
    "%n: float32[b, 8] = LayerNormalization(%x, %s, %c)\n%y: float32[b, 4] = rekindle::Linear(%n, %w)";

// How many copies a model gets, whose inputs all have gradients.
std::size_t copies(const std::string& inputs, const std::string& body, const std::string& needs = "1111") {
  JointGraph joint = joint_of(graph_text(inputs, body), needs);
  copy_biases(joint);
  verify_or_fail(joint);
  const std::string text = body_of(joint);
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find("rekindle::Copy(", at)) != std::string::npos; ++at) ++count;
  return count;
}

TEST_CASE("the copy is made before the normalization, which reads it", "[autodiff]") {
  JointGraph joint = joint_of(
      graph_text("%x: float32[b, 8], %s: float32[8], %c: float32[8], %w: float32[4, 8]", kNormalized),
      "1111");
  copy_biases(joint);
  CHECK_THAT(body_of(joint), Catch::StartsWith("%1 = rekindle::Copy(%c)\n%n, "));
  CHECK_THAT(body_of(joint), Catch::Contains("= LayerNormalization(%x, %s, %1)\n"));
}

TEST_CASE("only a small bias is copied, of a result that the backward reads", "[autodiff]") {
  const std::string weight = ", %w: float32[4, 8]";
  CHECK(copies("%x: float32[b, 8], %s: float32[8], %c: float32[8]" + weight, kNormalized) == 1);
  CHECK(copies("%x: float32[b, 8], %s: float32[8], %c: float32[8]" + weight, kNormalized, "1110") == 0);
  CHECK(copies("%x: float32[b, 8], %s: float32[8], %c: float32[?]" + weight, kNormalized) == 0);
  const std::string wide =
      "%x: float32[b, 40000], %s: float32[40000], %c: float32[40000], %w: float32[4, 40000]";
  CHECK(copies(wide,
               "%n: float32[b, 40000] = LayerNormalization(%x, %s, %c)\n"
               "%y: float32[b, 4] = rekindle::Linear(%n, %w)") == 0);
  CHECK(copies("%x: float32[b, 8], %s: float32[8], %w: float32[4, 8]",
               "%n: float32[b, 8] = LayerNormalization(%x, %s)\n%y: float32[b, 4] = rekindle::Linear(%n, %w)",
               "111") == 0);
}

TEST_CASE("a bias that is computed, or read by the backward, is not copied", "[autodiff]") {
  const std::string inputs = "%x: float32[b, 8], %s: float32[8], %c: float32[8], %w: float32[4, 8]";
  CHECK(copies(inputs,
               "%d: float32[8] = Tanh(%c)\n%n: float32[b, 8] = LayerNormalization(%x, %s, %d)\n"
               "%y: float32[b, 4] = rekindle::Linear(%n, %w)") == 0);
  CHECK(copies(inputs,
               "%n: float32[b, 8] = LayerNormalization(%x, %s, %c)\n%m: float32[b, 8] = Mul(%n, %c)\n"
               "%y: float32[b, 4] = rekindle::Linear(%m, %w)") == 0);
}

}  // namespace
}  // namespace rekindle::autodiff
