// A loss beside its scores: the backward makes the gradient of the scores block by block.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <string>

#include "tests/session/session_text.h"

namespace {

using rekindle::session::session_of;
using Tensors = std::vector<at::Tensor>;

constexpr std::int64_t kRows = 2100, kInner = 6;

// A linear layer whose rows have `parts` times `classes` scores, and the loss of all.
std::string text(std::int64_t classes, std::int64_t parts) {
  const std::string columns = std::to_string(classes * parts), all = std::to_string(kRows * parts);
  const std::string rows = std::to_string(kRows / 2), c = std::to_string(classes);
  return "graph g(%x: float64[2, " + rows + ", 6], %w: float64[" + columns + ", 6], %b: float64[" + columns +
         "], %t: int64[" + all + "]) {\n  opset 20, rekindle 1\n" +  //
         "  %z: float64[2, " + rows + ", " + columns + "] = rekindle::Linear(%x, %w, %b)\n" +
         "  %k = Constant() {value = int64[2]{-1, " + c + "}}\n" +  //
         "  %s: float64[" + all + ", " + c + "] = Reshape(%z, %k)\n" +
         "  %y: float64[] = rekindle::CrossEntropyLoss(%s, %t)\n  return %y, %z\n}\n";
}

Tensors inputs(std::int64_t classes, std::int64_t parts) {
  const auto options = at::TensorOptions().dtype(at::kDouble);
  at::manual_seed(6);
  return {at::randn({2, kRows / 2, kInner}, options).requires_grad_(),
          at::randn({classes * parts, kInner}, options).requires_grad_(),
          at::randn({classes * parts}, options).requires_grad_(),
          at::randint(classes, {kRows * parts}, at::kLong)};
}

Tensors gradients_of(const Tensors& in) {
  Tensors gradients;
  for (std::size_t i = 0; i < 3; ++i) {
    gradients.push_back(in[i].grad().clone());
    in[i].mutable_grad() = at::Tensor();
  }
  return gradients;
}

void check(std::int64_t classes, std::int64_t parts) {
  CAPTURE(classes, parts);
  const Tensors in = inputs(classes, parts);
  const at::Tensor scores = at::linear(in[0], in[1], in[2]);
  const at::Tensor loss = at::cross_entropy_loss(scores.view({-1, classes}), in[3]);
  (loss * 0.5).backward();
  const Tensors expected = gradients_of(in);
  const auto session = session_of(text(classes, parts), {true, true, true, false});
  for (int step = 0; step < 2; ++step) {
    const Tensors found = session->forward(in, true);
    CHECK(at::allclose(found[0], loss));
    CHECK(at::allclose(found[1], scores));
    (found[0] * 0.5).backward();
    const Tensors gradients = gradients_of(in);
    for (std::size_t i = 0; i < 3; ++i) CHECK(at::allclose(gradients[i], expected[i], 1e-9, 1e-12));
  }
  CHECK_THAT(session->describe_plan(), Catch::Contains("LinearCrossEntropyGradient"));
}

}  // namespace

TEST_CASE("gradients by way of returned scores equal eager's", "[session]") {
  check(700, 1);  // in blocks
  check(5, 1);    // whole
  check(5, 3);    // a row of the layer makes three rows of scores
}

TEST_CASE("gradients by way of returned scores too, and of the scores themselves, equal eager's",
          "[session]") {
  const Tensors in = inputs(700, 1);
  const at::Tensor scores = at::linear(in[0], in[1], in[2]);
  (at::cross_entropy_loss(scores.view({-1, 700}), in[3]) + scores.square().mean()).backward();
  const Tensors expected = gradients_of(in);
  const auto session = session_of(text(700, 1), {true, true, true, false});
  const Tensors found = session->forward(in, true);
  (found[0] + found[1].square().mean()).backward();
  const Tensors gradients = gradients_of(in);
  for (std::size_t i = 0; i < 3; ++i) CHECK(at::allclose(gradients[i], expected[i], 1e-9, 1e-12));
}

TEST_CASE("the gradient of returned scores takes a block of memory", "[session][host]") {
  const auto session = session_of(text(700, 1), {true, true, true, false});
  const Tensors in = inputs(700, 1);
  session->forward(in, true)[0].backward();
  const std::size_t scores = kRows * 700 * sizeof(double);
  CHECK(session->stats().arena_bytes < scores / 2);
}
