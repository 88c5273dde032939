// Functions outside of C++ that a graph calls: what they are given, what
// is copied, gradients that are not there.
#include "session/host_function.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "device/random_state.h"
#include "tests/session/session_text.h"

namespace {

using rekindle::session::HostFunction;
using rekindle::session::HostResults;
using rekindle::session::TestedSession;

// Calls what it is made with; counts its calls.
class Made : public HostFunction {
 public:
  std::function<at::Tensor(const at::Tensor&)> body;
  bool dirty = false, declared = false, shares = false, again = false;
  int calls = 0;

  HostResults call(const std::vector<at::Tensor>& inputs, const std::vector<bool>& own,
                   const std::vector<at::Tensor>& planned) override {
    ++calls;
    REQUIRE(planned.size() == 1);
    last_own = own[0];
    last_input = inputs[0].data_ptr();
    return {{body(inputs[0])}, {shares && !own[0] && !declared}};
  }
  bool writes(std::size_t /*i*/) const override { return dirty; }
  bool may_overwrite(std::size_t /*i*/) const override { return declared; }
  bool reuses(std::size_t /*i*/) const override { return declared; }
  bool recomputes() const override { return again; }
  std::optional<std::vector<at::Tensor>> infer(const std::vector<at::Tensor>& inputs) const override {
    return std::vector{at::empty(inputs[0].sizes(), inputs[0].options())};
  }
  bool last_own = false;
  const void* last_input = nullptr;
};

const std::string kCall =
    "torch::rekindle.call_host.default(%h) {function = 0, inputs = 1, _results = 1, _differentiable = [0], "
    "_random = 1}";

std::shared_ptr<TestedSession> session_of(const std::shared_ptr<Made>& function,
                                          const std::string& outputs = "%y", bool gradient = true) {
  auto session = rekindle::session::session_of(
      "graph t(%x: float64[4, 5]) {\n  opset 20, rekindle 1, torch 1\n"
      "  %h: float64[4, 5] = Tanh(%x)\n  %z: float64[4, 5] = " +
          kCall + "\n  %y: float64[4, 5] = Exp(%z)\n  return " + outputs + "\n}",
      {gradient});
  session->set_functions({function});
  return session;
}

at::Tensor matrix() { return at::randn({4, 5}, at::kDouble).requires_grad_(); }

at::Tensor grad(const at::Tensor& y, const at::Tensor& x) {
  return torch::autograd::grad({y}, {x}, {at::ones_like(y)}, std::nullopt, false, /*allow_unused=*/true)[0];
}

}  // namespace

TEST_CASE("a host function runs once a step and its history gives the gradient", "[session]") {
  const auto function = std::make_shared<Made>();
  function->body = [](const at::Tensor& h) { return h * h; };
  const auto session = session_of(function);
  for (int step = 1; step <= 3; ++step) {
    const at::Tensor x = matrix();
    const at::Tensor ours = session->forward(std::vector{x}, true)[0];
    const at::Tensor theirs = x.tanh().square().exp();
    CHECK(at::allclose(ours, theirs));
    CHECK(at::allclose(grad(ours, x), grad(theirs, x)));
    CHECK(function->calls == step);
  }
}

TEST_CASE("a host function that recomputes runs again in each backward, from the random state it had",
          "[session]") {
  const auto function = std::make_shared<Made>();
  function->again = true;
  c10::weak_intrusive_ptr<c10::TensorImpl> saved(at::empty({0}).getIntrusivePtr());
  function->body = [&](const at::Tensor& h) {
    const at::Tensor mask = at::rand_like(h.detach());
    saved = c10::weak_intrusive_ptr<c10::TensorImpl>(mask.getIntrusivePtr());
    return h * mask;
  };
  const auto session = session_of(function);
  const at::Tensor x = matrix();
  at::manual_seed(1);
  const at::Tensor ours = session->forward(std::vector{x}, true)[0];
  CHECK(saved.expired());  // eager would keep it
  at::manual_seed(1);
  const at::Tensor theirs = (x.tanh() * at::rand_like(x.detach())).exp();
  CHECK(at::allclose(ours, theirs));
  const auto states = rekindle::device::random_states();
  for (int backward = 1; backward <= 2; ++backward) {
    const at::Tensor found = torch::autograd::grad({ours}, {x}, {at::ones_like(ours)}, true)[0];
    CHECK(at::allclose(found, torch::autograd::grad({theirs}, {x}, {at::ones_like(theirs)}, true)[0]));
    CHECK(function->calls == 1 + backward);
  }
  const auto after = rekindle::device::random_states();  // the backward has drawn nothing
  CHECK(std::ranges::equal(after, states, [](const at::Tensor& a, const at::Tensor& b) {
    return a.defined() == b.defined() && (!a.defined() || at::equal(a, b));
  }));
  function->dirty = true;
  grad(session->forward(std::vector{x}, true)[0], x);
  CHECK(function->calls == 4);
}

TEST_CASE("an input is overwritten only where that is declared and nothing else reads it", "[session]") {
  const auto function = std::make_shared<Made>();
  function->body = [](const at::Tensor& h) { return h.mul_(2); };
  function->dirty = true;
  const at::Tensor x = matrix().detach();
  const at::Tensor theirs = (x.tanh() * 2).exp();
  CHECK(at::allclose(session_of(function, "%y", false)->forward(std::vector{x}, false)[0], theirs));
  CHECK(function->last_own);
  function->declared = true;
  CHECK(at::allclose(session_of(function, "%y", false)->forward(std::vector{x}, false)[0], theirs));
  CHECK_FALSE(function->last_own);
  const auto both = session_of(function, "%y, %h")->forward(std::vector{x}, false);
  CHECK(function->last_own);
  CHECK(at::allclose(both[0], theirs));
  CHECK(at::allclose(both[1], x.tanh()));
}

TEST_CASE("a result in the memory of an input is copied unless that is declared", "[session][host]") {
  const auto function = std::make_shared<Made>();
  function->body = [](const at::Tensor& h) { return h.view(h.sizes()); };
  function->shares = true;
  const at::Tensor x = matrix().detach();
  for (const bool declared : {false, true}) {
    function->declared = declared;
    const auto results = session_of(function, "%y, %z")->forward(std::vector{x}, false);
    CHECK((results[1].data_ptr() == function->last_input) == declared);
    CHECK(at::allclose(results[1], x.tanh()));
  }
}

TEST_CASE("a gradient that a host function does not give is absent from there on", "[session]") {
  const auto function = std::make_shared<Made>();
  bool detached = true;
  function->body = [&](const at::Tensor& h) { return detached ? h.detach() * 2 : h * 2; };
  const auto session = session_of(function);
  const at::Tensor x = matrix();
  CHECK_FALSE(grad(session->forward(std::vector{x}, true)[0], x).defined());
  detached = false;
  CHECK(at::allclose(grad(session->forward(std::vector{x}, true)[0], x), grad((x.tanh() * 2).exp(), x)));
  detached = true;
  CHECK_FALSE(grad(session->forward(std::vector{x}, true)[0], x).defined());
}

TEST_CASE("other sizes are planned by what the function infers", "[session]") {
  const auto function = std::make_shared<Made>();
  function->body = [](const at::Tensor& h) { return h + 1; };
  const auto session = session_of(function);
  const at::Tensor x = at::randn({2, 3}, at::kDouble);
  CHECK(at::allclose(session->forward(std::vector{x}, false)[0], (x.tanh() + 1).exp()));
}

TEST_CASE("a session without the function that its graph calls says so", "[session]") {
  const auto session = session_of(std::make_shared<Made>());
  session->set_functions({});
  CHECK_THROWS_WITH(session->forward(std::vector{matrix().detach()}, false),
                    Catch::Contains("host function 0"));
}
