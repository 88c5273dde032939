// Nodes that are lowered when they run, because sizes depend on data: views, sums and gradients that are
// absent.
#include "session/run/deferred.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <catch2/catch.hpp>

#include "session/host_function.h"
#include "tests/session/session_text.h"

namespace {

using rekindle::session::HostFunction;
using rekindle::session::HostResults;
using rekindle::session::TestedSession;

// Twice its input, without a gradient.
class Detached : public HostFunction {
 public:
  HostResults call(const std::vector<at::Tensor>& inputs, const std::vector<bool>& /*own*/,
                   const std::vector<at::Tensor>& /*planned*/) override {
    return {{inputs[0].detach() * 2}, {false}};
  }
  bool writes(std::size_t /*i*/) const override { return false; }
  bool may_overwrite(std::size_t /*i*/) const override { return false; }
  bool reuses(std::size_t /*i*/) const override { return false; }
  std::optional<std::vector<at::Tensor>> infer(const std::vector<at::Tensor>& inputs) const override {
    return std::vector{at::empty(inputs[0].sizes(), inputs[0].options())};
  }
};

// %h holds those elements of %x for which %m is true; `body` makes the outputs of it.
std::shared_ptr<TestedSession> session_of(const std::string& body, const std::string& outputs) {
  auto session = rekindle::session::session_of(
      "graph t(%x: float64[4, 5], %m: bool[4, 5]) {\n  opset 20, rekindle 1, torch 1\n"
      "  %h: float64[n] = torch::aten.masked_select.default(%x, %m) "
      "{_results = 1, _differentiable = [0], _sized_by_data = 1}\n  " +
          body + "\n  return " + outputs + "\n}",
      {true, false});
  session->set_functions({std::make_shared<Detached>()});
  return session;
}

// `y` of `x`, both float64 vectors.
std::string detached(const std::string& y, const std::string& x) {
  return "%" + y + ": float64[" + y + "] = torch::rekindle.call_host.default(%" + x +
         ") {function = 0, inputs = 1, _results = 1, _differentiable = [0], _random = 1}\n";
}

// The first and the second half of %h.
const std::string kHalves = "%a: float64[p], %b: float64[q] = Split(%h) {axis = 0}\n";

at::Tensor matrix() { return at::randn({4, 5}, at::kDouble).requires_grad_(); }

// Of the sum of those outputs that have one; undefined where none leads to `x`.
at::Tensor grad(const std::vector<at::Tensor>& outputs, const at::Tensor& x) {
  std::vector<at::Tensor> differentiable, ones;
  for (const at::Tensor& y : outputs) {
    if (!y.requires_grad()) continue;
    differentiable.push_back(y);
    ones.push_back(at::ones_like(y));
  }
  return torch::autograd::grad(differentiable, {x}, ones, std::nullopt, false, /*allow_unused=*/true)[0];
}

// Compares two runs, in which the mask has other numbers of elements, with `eager`, which gets %h.
void check_like(const std::shared_ptr<TestedSession>& session,
                const std::function<std::vector<at::Tensor>(const at::Tensor&)>& eager) {
  for (const double least : {0.0, -1.0}) {
    const at::Tensor x = matrix(), mask = x.detach() > least;
    const auto ours = session->forward(std::vector{x, mask}, true);
    const auto theirs = eager(x.masked_select(mask));
    REQUIRE(ours.size() == theirs.size());
    for (std::size_t i = 0; i < ours.size(); ++i) CHECK(at::allclose(ours[i], theirs[i]));
    CHECK(at::allclose(grad(ours, x), grad(theirs, x)));
  }
  CHECK(session->stats().plans == 1);
}

}  // namespace

TEST_CASE("an absent gradient is zeros of the size at run time beside one that is there", "[session]") {
  const auto session = session_of(
      kHalves + detached("z", "a") + "%y: float64[z] = Exp(%z)\n%w: float64[q] = Exp(%b)", "%y, %w");
  check_like(session, [](const at::Tensor& h) {
    const auto halves = h.split((h.size(0) + 1) / 2);
    return std::vector{(halves[0].detach() * 2).exp(), halves[1].exp()};
  });
}

TEST_CASE("the size of an absent gradient is known after ops that were skipped", "[session]") {
  const auto session = session_of(kHalves + "%e: float64[p] = Exp(%a)\n" + detached("z", "e") +
                                      "%y: float64[z] = Neg(%z)\n%w: float64[q] = Exp(%b)",
                                  "%y, %w");
  check_like(session, [](const at::Tensor& h) {
    const auto halves = h.split((h.size(0) + 1) / 2);
    return std::vector{(halves[0].exp().detach() * 2).neg(), halves[1].exp()};
  });
}

TEST_CASE("a gradient of which every part is absent is absent", "[session]") {
  const auto session = session_of(kHalves + detached("z", "a") + detached("v", "b") +
                                      "%y: float64[z] = Exp(%z)\n%w: float64[v] = Exp(%v)",
                                  "%y, %w");
  const at::Tensor x = matrix();
  CHECK_FALSE(grad(session->forward(std::vector{x, x.detach() > 0}, true), x).defined());
}

TEST_CASE("a sum takes what is there of two gradients", "[session]") {
  const auto session =
      session_of(detached("z", "h") + "%y: float64[z] = Exp(%z)\n%w: float64[n] = Exp(%h)", "%y, %w");
  check_like(session, [](const at::Tensor& h) { return std::vector{(h.detach() * 2).exp(), h.exp()}; });
}

TEST_CASE("a result that views a value sized by data has memory of its own", "[session]") {
  const auto session = session_of(
      "%i: int64[1] = Constant() {value = int64[1]{0}}\n%u: float64[1, n] = Unsqueeze(%h, %i)", "%h, %u");
  const at::Tensor x = matrix();
  const auto ours = session->forward(std::vector{x, x.detach() > 0}, false);
  CHECK(at::equal(ours[1][0], ours[0]));
  CHECK_FALSE(ours[1].is_alias_of(ours[0]));
}

TEST_CASE("an edit of a result shows in a view of it that the backward reads", "[session][host]") {
  const auto session = session_of(
      "%i: int64[1] = Constant() {value = int64[1]{0}}\n%u: float64[1, n] = Unsqueeze(%h, %i)\n"
      "%y: float64[1, n] = torch::aten.sinc.default(%u) {_results = 1, _differentiable = [0]}",
      "%h, %y");
  const at::Tensor x = matrix();
  const auto ours = session->forward(std::vector{x, x.detach() > 0}, true);
  {
    const c10::NoGradGuard no_grad;
    ours[0].add_(1);
  }
  CHECK_THROWS_WITH(grad({ours[1]}, x), Catch::Contains("modified by an inplace operation"));
}

TEST_CASE("sizes that do not fit are found when they are there, by the node's name", "[session]") {
  const auto session = session_of(
      "%i: int64[2] = Constant() {value = int64[2]{2, 5}}\n%y: float64[2, 5] = Reshape(%h, %i)", "%y");
  const at::Tensor x = matrix();
  CHECK_THROWS_WITH(session->forward(std::vector{x, x.detach() > 1e3}, false),
                    Catch::Contains("'y' (Reshape)"));
}
