// Values that a backward pass computes again: bit for bit what it would have read, and less to save.
#include "src/autodiff/rematerialize.h"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "tests/session/session_text.h"

namespace {

using rekindle::session::TestedSession;
using Tensors = std::vector<at::Tensor>;

// Two outputs, so that a backward may be asked for one of them. %g and %d are computed again.
constexpr const char* kText = R"(
graph g(%x: float32[n, 64], %w: float32[64, 64], %v: float32[64, 64]) {
  opset 20, rekindle 1
  %t = Constant() {value = bool[]{true}}
  %r = Constant() {value = float32[]{0.25}}
  %h: float32[n, 64] = rekindle::Linear(%x, %w)
  %g: float32[n, 64] = Gelu(%h)
  %y: float32[n, 64] = rekindle::Linear(%g, %v)
  %s: float32[n, 64] = Softmax(%y)
  %d: float32[n, 64] = Dropout(%s, %r, %t)
  %z: float32[n, 64] = rekindle::Linear(%d, %v)
  %a: float32[] = ReduceSum(%y) {keepdims = 0}
  %b: float32[] = ReduceSum(%z) {keepdims = 0}
  return %a, %b
}
)";

std::shared_ptr<TestedSession> session_of(bool rematerialize) {
  auto joint = rekindle::session::joint_of(kText, {true, true, true});
  if (rematerialize) rekindle::autodiff::rematerialize(joint);
  return rekindle::session::session_of(std::move(joint));
}

Tensors inputs_of(std::int64_t rows) {
  at::manual_seed(1);
  return {at::randn({rows, 64}).requires_grad_(), at::randn({64, 64}).requires_grad_(),
          at::randn({64, 64}).requires_grad_()};
}

// The gradients of one forward by the outputs in `asked`, one backward each.
Tensors gradients(TestedSession& session, const Tensors& in, const std::vector<std::size_t>& asked) {
  at::manual_seed(2);
  const Tensors outputs = session.forward(in, true);
  for (const std::size_t i : asked) outputs.at(i).backward({}, /*retain_graph=*/true);
  Tensors found;
  for (const at::Tensor& tensor : in) {
    found.push_back(tensor.grad().clone());
    tensor.mutable_grad() = at::Tensor();
  }
  return found;
}

constexpr std::int64_t kMany = 2048, kFew = 8;  // rows: of half a MiB and of 2 KiB a value

}  // namespace

TEST_CASE("gradients are the same bit for bit whichever outputs are asked for", "[session]") {
  const std::int64_t rows = GENERATE(kMany, kFew);
  const auto ours = session_of(true), other = session_of(false);
  const Tensors in = inputs_of(rows);
  // A plan is made for the set of cotangents seen last: each of these but the first is a wrong guess.
  for (const auto& asked : std::vector<std::vector<std::size_t>>{{1}, {0}, {0, 1}, {1, 1}, {1, 0}}) {
    const Tensors found = gradients(*ours, in, asked), expected = gradients(*other, in, asked);
    for (std::size_t i = 0; i < in.size(); ++i) {
      INFO("gradient " << i << " of output " << asked[0]);
      REQUIRE(at::equal(found[i], expected[i]));
    }
  }
}

TEST_CASE("large values are not saved, small ones are", "[session]") {
  const auto ours = session_of(true), other = session_of(false);
  const auto saved = [](TestedSession& session, std::int64_t rows) {
    session.prepare(inputs_of(rows), true);
    return session.stats().saved_bytes;
  };
  constexpr std::size_t kValue = kMany * 64 * sizeof(float);
  CHECK(saved(*ours, kMany) == saved(*other, kMany) - 2 * kValue);
  CHECK(saved(*ours, kFew) == saved(*other, kFew));
}
