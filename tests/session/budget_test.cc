// Memory budgets: kept to the byte, monotone, and without a changed bit.
#include "session/plan/budget.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "session/plan/memory_account.h"
#include "src/autodiff/copy_biases.h"
#include "src/autodiff/rematerialize.h"
#include "tests/session/session_text.h"

namespace {

using rekindle::session::MemoryAccount;
using rekindle::session::MemoryBudget;
using rekindle::session::session_of;
using rekindle::session::SessionOptions;
using rekindle::session::TestedSession;
using Tensors = std::vector<at::Tensor>;

constexpr std::int64_t kWidth = 64;

// `layers` of a residual block with a normalization, a widening linear layer, a GELU, a dropout, a view and a
// narrowing linear layer; the loss is the last output, the activations before it the first.
std::string model(int layers) {
  std::string text =
      "graph g(%x0: float32[n, 64], %s: float32[64], %w: float32[128, 64], %v: float32[64, 128]) {\n";
  text += "  opset 20, rekindle 1\n  %shape = Constant() {value = int64[2]{-1, 128}}\n";
  text += "  %p = Constant() {value = float32[]{0.25}}\n  %on = Constant() {value = bool[]{true}}\n";
  for (int i = 0; i < layers; ++i) {
    const std::string n = std::to_string(i), x = "%x" + n, next = "%x" + std::to_string(i + 1);
    text += "  %a" + n + ": float32[n, 64] = LayerNormalization(" + x + ", %s) {axis = -1}\n";
    text += "  %h" + n + ": float32[n, 128] = rekindle::Linear(%a" + n + ", %w)\n";
    text += "  %g" + n + ": float32[n, 128] = Gelu(%h" + n + ")\n";
    text += "  %r" + n + ": float32[n, 128] = Reshape(%g" + n + ", %shape)\n";
    text += "  %d" + n + ": float32[n, 128], %m" + n + ": bool[n, 128] = Dropout(%r" + n + ", %p, %on)\n";
    text += "  %b" + n + ": float32[n, 64] = rekindle::Linear(%d" + n + ", %v)\n";
    text += "  " + next + ": float32[n, 64] = Add(" + x + ", %b" + n + ")\n";
  }
  const std::string last = "%x" + std::to_string(layers);
  text += "  %t: float32[n, 64] = Tanh(" + last + ")\n  %l: float32[] = ReduceSum(%t) {keepdims = 0}\n";
  return text + "  return %t, %l\n}\n";
}

// A session as the product makes it: what is cheap is computed again without a budget, too.
std::shared_ptr<TestedSession> session_with(int layers, MemoryBudget budget) {
  SessionOptions options;
  options.expected_cotangents = {false, true};
  options.memory_budget = budget;
  auto joint = rekindle::session::joint_of(model(layers), {true, true, true, true});
  rekindle::autodiff::rematerialize(joint);
  return session_of(std::move(joint), std::move(options));
}

Tensors inputs() {
  at::manual_seed(3);
  Tensors all = {at::randn({1024, kWidth}), at::rand({kWidth}), at::randn({2 * kWidth, kWidth}) / 8,
                 at::randn({kWidth, 2 * kWidth}) / 8};
  for (at::Tensor& tensor : all) tensor.requires_grad_();
  return all;
}

// Results, gradients, and what is drawn next.
Tensors step(const auto& session, const Tensors& given, std::size_t output = 1) {
  at::manual_seed(5);
  const Tensors outputs = session->forward(given, true);
  for (const at::Tensor& tensor : given) tensor.mutable_grad() = at::Tensor();
  outputs[output].backward(at::ones_like(outputs[output]));
  Tensors results = {outputs[0].detach().clone(), outputs[1].detach().clone()};
  for (const at::Tensor& tensor : given) results.push_back(tensor.grad().clone());
  results.push_back(at::rand({4}));  // as many random numbers were drawn
  return results;
}

void check_same(const Tensors& a, const Tensors& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(at::equal(a[i], b[i]));
}

}  // namespace

TEST_CASE("twenty budgets are kept to the byte and no smaller one takes more", "[session][budget]") {
  const Tensors given = inputs();
  const auto free = session_with(6, {});
  step(free, given);  // the first products of a process: MKL may divide them otherwise, to other bits
  const Tensors expected = step(free, given);
  const std::size_t full = free->memory(given, true).activation_bytes;
  std::size_t before = full;
  double share = 0;
  for (int part = 20; part >= 1; --part) {
    const double budget = part / 20.0;
    INFO("budget " << budget);
    const auto session = session_with(6, {0, budget});
    const MemoryAccount account = session->memory(given, true);
    REQUIRE(account.budget);
    CHECK(account.budget->without == full);
    CHECK(account.budget->bytes == static_cast<std::size_t>(budget * static_cast<double>(full)));
    CHECK(account.activation_bytes <= before);
    if (part >= 8) CHECK(account.activation_bytes <= account.budget->bytes);
    CHECK(account.budget->share >= share);
    before = account.activation_bytes;
    share = account.budget->share;
    check_same(step(session, given), expected);
    CHECK(session->stats().plans_made == 1);
    CHECK(session->stats().recomputed == account.budget->instructions);
  }
  CHECK(before < full * 2 / 5);
  CHECK(share > 0);
}

TEST_CASE("what a budgeted plan is said to take is what its account adds up to", "[session][budget]") {
  const Tensors given = inputs();
  const auto session = session_with(4, {0, 0.5});
  const MemoryAccount account = session->memory(given, true);
  std::size_t most = 0;
  for (std::int32_t at = 0; at < account.forward.instructions + account.backward.instructions; ++at) {
    std::size_t live = 0;
    for (const auto& value : account.values) {
      if (value.offset && value.first <= at && at <= value.last) live += value.bytes;
    }
    most = std::max(most, live);
  }
  CHECK(account.activation_bytes >= account.arena_bytes);  // kernels of an accelerator give tensors of theirs
  CHECK(most <= account.arena_bytes);
  CHECK(account.arena_bytes <= most + most / 20);
  CHECK(account.arena_bytes == session->stats().arena_bytes);
}

TEST_CASE("backwards of other results find what a budgeted forward has left", "[session][budget]") {
  const Tensors given = inputs();
  const auto free = session_with(4, {});
  const auto session = session_with(4, {0, 0.4});
  check_same(step(session, given), step(free, given));
  check_same(step(session, given, 0), step(free, given, 0));  // the forward had guessed wrong
  check_same(step(session, given, 0), step(free, given, 0));
  check_same(step(session, given), step(free, given));
}

TEST_CASE("a plan for another backward is made once", "[session][budget]") {
  const Tensors given = inputs();
  const auto session = session_with(4, {0, 0.4});
  const Tensors outputs = session->forward(given, true);
  outputs[0].backward(at::ones_like(outputs[0]), true);
  const std::size_t plans = session->stats().plans_made;
  for (int each = 0; each < 3; ++each) outputs[0].backward(at::ones_like(outputs[0]), true);
  CHECK(session->stats().plans_made == plans);
}

TEST_CASE("a budgeted backward may run twice", "[session][budget]") {
  const Tensors given = inputs();
  const auto free = session_with(3, {});
  const Tensors expected = step(free, given);
  const auto session = session_with(3, {0, 0.4});
  at::manual_seed(5);
  const Tensors outputs = session->forward(given, true);
  for (int each = 0; each < 2; ++each) {
    for (const at::Tensor& tensor : given) tensor.mutable_grad() = at::Tensor();
    outputs[1].backward({}, each == 0);
    for (std::size_t i = 0; i < given.size(); ++i) CHECK(at::equal(given[i].grad(), expected[2 + i]));
  }
}

TEST_CASE("a parameter that is written before its values are made again is an error",
          "[session][budget][host]") {
  const Tensors given = inputs();
  const auto session = session_with(3, {0, 0.4});
  const Tensors outputs = session->forward(given, true);
  {
    const at::NoGradGuard no_grad;
    given[2].mul_(2);
  }
  CHECK_THROWS_WITH(outputs[1].backward(),
                    Catch::Contains("modified by an inplace operation") && Catch::Contains("'w'"));
}

TEST_CASE("a budget that cannot be kept is a warning, and the least is taken", "[session][budget]") {
  const Tensors given = inputs();
  const auto free = session_with(4, {});
  const auto session = session_with(4, {1, 0});
  const MemoryAccount account = session->memory(given, true);
  CHECK(account.activation_bytes > 1);
  CHECK(account.activation_bytes < free->memory(given, true).activation_bytes / 2);
  check_same(step(session, given), step(free, given));
}

TEST_CASE("a gradient leaves when nothing reads the parameter that it is of", "[session]") {
  constexpr const char* kText = R"(
graph g(%x: float32[n, 64], %p: float32[n, 64], %q: float32[64]) {
  opset 20, rekindle 1
  %a: float32[n, 64] = Mul(%x, %q)
  %y: float32[n, 64] = Mul(%p, %a)
  %l: float32[] = ReduceSum(%y) {keepdims = 0}
  return %l
}
)";
  const auto session = session_of(kText, {false, true, true});
  Tensors given = {at::randn({8, 64}), at::randn({8, 64}).requires_grad_(), at::randn({64}).requires_grad_()};
  const at::Tensor p = given[1].detach().clone();
  // A step of the optimizer as soon as the gradient is there.
  given[1].register_hook([&](const at::Tensor&) { given[1].detach().mul_(0); });
  session->forward(given, true)[0].backward();
  CHECK(at::allclose(given[2].grad(), (given[0] * p).sum(0)));
  CHECK(given[1].detach().abs().max().item<float>() == 0);
}

TEST_CASE("more time buys less memory, without a changed bit", "[session][budget]") {
  const Tensors given = inputs();
  const auto held = [&](double time) {
    const auto session = session_with(6, {.time = time, .anything = true});
    check_same(step(session, given), step(session_with(6, {}), given));
    CHECK((session->stats().recomputed > 0) == (time > 0));
    return session->memory(given, true).activation_bytes;
  };
  const std::size_t nothing = held(0), tenth = held(0.1), third = held(0.34);
  CHECK(tenth < nothing);
  CHECK(third < tenth);
  CHECK(third < nothing * 3 / 5);
}

TEST_CASE("a normalization is computed again of the bias that the forward read", "[session][budget]") {
  auto joint = rekindle::session::joint_of(R"(
graph g(%x: float32[n, 64], %s: float32[64], %c: float32[64], %w: float32[64, 64]) {
  opset 20, rekindle 1
  %y0: float32[n, 64] = LayerNormalization(%x, %s, %c) {axis = -1}
  %z0: float32[n, 64] = rekindle::Linear(%y0, %w)
  %y1: float32[n, 64] = LayerNormalization(%z0, %s, %c) {axis = -1}
  %z1: float32[n, 64] = rekindle::Linear(%y1, %w)
  %t: float32[n, 64] = Tanh(%z1)
  %l: float32[] = ReduceSum(%t) {keepdims = 0}
  return %l
}
)",
                                           {true, true, true, true});
  rekindle::autodiff::copy_biases(joint);
  SessionOptions options;
  options.memory_budget.time = 0.9;
  const auto session = session_of(std::move(joint), std::move(options));
  at::manual_seed(4);
  Tensors given = {at::randn({4096, 64}), at::rand({64}), at::randn({64}), at::randn({64, 64}) / 8};
  for (at::Tensor& tensor : given) tensor.requires_grad_();
  const auto layer = [&](const at::Tensor& x) {
    return at::layer_norm(x, {64}, given[1], given[2]).matmul(given[3].t());
  };
  layer(layer(given[0])).tanh().sum().backward();
  const at::Tensor expected = given[3].grad().clone();
  given[3].mutable_grad() = at::Tensor();
  const at::Tensor loss = session->forward(given, true)[0];
  {
    const at::NoGradGuard no_grad;
    given[2].zero_();  // eager has not saved it
  }
  loss.backward();
  CHECK(session->stats().recomputed > 0);
  CHECK(at::allclose(given[3].grad(), expected, 1e-4, 1e-3));
}
