// Ops that take rows of tokens out of values, and put them back: values, gradients and draws.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "tests/session/session_text.h"

namespace {

using Catch::Matchers::Contains;
using rekindle::session::session_of;
using Tensors = std::vector<at::Tensor>;

at::Tensor rows() { return at::tensor({1, 2, 6, 11}, at::kLong); }
at::Tensor tokens() { return at::zeros({3, 4}, at::kLong); }

// The rows of x [3, 4, ...] or [1, 4, ...].
at::Tensor taken(const at::Tensor& x) {
  at::Tensor all = x.expand({3, 4, x.size(2)}).reshape({12, x.size(2)});
  return all.index_select(0, rows().to(x.device()));
}

at::Tensor leaf(at::IntArrayRef sizes) {
  at::manual_seed(3);
  return at::randn(sizes).requires_grad_();
}

constexpr const char* kPack = R"(graph g(%x: float32[b, s, 5], %r: int64[n], %t: int64[3, 4]) {
  opset 20, rekindle 1
  %y: float32[n, 5] = rekindle::PackRows(%x, %r, %t)
  return %y
})";

constexpr const char* kUnpack =
    R"(graph g(%x: float32[n, 5], %r: int64[n], %t: int64[3, 4], %c: bool[n]) {
  opset 20, rekindle 1
  %y: float32[3, 4, 5] = rekindle::UnpackRows(%x, %r, %t, %c)
  return %y
})";

void check_pack(const at::Tensor& x) {
  const auto session = session_of(kPack, {true, false, false});
  const at::Tensor y = session->forward(Tensors{x, rows(), tokens()}, true)[0];
  CHECK(at::equal(y, taken(x)));
  y.pow(2).sum().backward();
  const at::Tensor gradient = x.grad().clone();
  x.mutable_grad() = at::Tensor();
  taken(x).pow(2).sum().backward();
  CHECK(at::equal(gradient, x.grad()));
}

}  // namespace

TEST_CASE("rows are taken, and their gradients go back to their places", "[session][padding]") {
  check_pack(leaf({3, 4, 5}));
}

TEST_CASE("what is the same for all sequences gets the sum of their gradients", "[session][padding]") {
  check_pack(leaf({1, 4, 5}));
}

TEST_CASE("rows are taken of values that lie in another order", "[session][padding]") {
  const at::Tensor x = leaf({4, 3, 5});
  const auto session = session_of(kPack, {false, false, false});
  const at::Tensor turned = x.detach().transpose(0, 1);
  CHECK(at::equal(session->forward(Tensors{turned, rows(), tokens()}, false)[0], taken(turned)));
}

TEST_CASE("rows that count go to their places, with zeros between them", "[session][padding]") {
  const auto session = session_of(kUnpack, {true, false, false, false});
  const at::Tensor x = leaf({4, 5}), counts = at::tensor({1, 1, 0, 1}).to(at::kBool);
  const at::Tensor y = session->forward(Tensors{x, rows(), tokens(), counts}, true)[0];
  CHECK(at::equal(taken(y.detach()), x.detach() * counts.view({4, 1})));
  CHECK(y.count_nonzero().item<std::int64_t>() == 15);
  at::Tensor dy = at::zeros({3, 4, 5});
  dy.view({12, 5}).index_fill_(0, at::tensor({1, 2, 11}, at::kLong), 2);
  y.backward(dy, /*retain_graph=*/true);
  CHECK(at::equal(x.grad(), at::full({4, 5}, 2) * counts.view({4, 1})));
  for (const std::int64_t other : {0, 6}) {  // that is left out, and that only fills up
    at::Tensor wrong = dy.clone();
    wrong.view({12, 5})[other].fill_(1);
    CHECK_THROWS_WITH(y.backward(wrong, /*retain_graph=*/true),
                      Contains("padding_elimination") && Contains("[3, 4, 5]"));
  }
}

TEST_CASE("a dropout of some rows drops what one of all rows drops", "[session][padding]") {
  const auto whole = session_of(R"(graph g(%x: float32[3, 4, 5]) {
  opset 20
  %p = Constant() {value = float32[]{0.5}}
  %on = Constant() {value = bool[]{true}}
  %y: float32[3, 4, 5], %m: bool[3, 4, 5] = Dropout(%x, %p, %on)
  return %y
})",
                                {true});
  const auto some = session_of(R"(graph g(%x: float32[n, 5], %r: int64[n], %t: int64[3, 4]) {
  opset 20, rekindle 1
  %p = Constant() {value = float32[]{0.5}}
  %y: float32[n, 5], %m: bool[n, 5] = rekindle::DropoutRows(%x, %p, %r, %t)
  return %y
})",
                               {true, false, false});
  const at::Tensor x = leaf({3, 4, 5}), few = taken(x.detach()).requires_grad_();
  at::manual_seed(9);
  const at::Tensor all = whole->forward(Tensors{x}, true)[0], next = at::rand({3});
  at::manual_seed(9);
  const at::Tensor y = some->forward(Tensors{few, rows(), tokens()}, true)[0];
  CHECK(at::equal(at::rand({3}), next));
  CHECK(at::equal(y, taken(all)));
  all.sum().backward();
  y.sum().backward();
  CHECK(at::equal(few.grad(), taken(x.grad())));
}
