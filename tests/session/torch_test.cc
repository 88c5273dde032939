// Nodes of the torch domain: PyTorch runs and differentiates them.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <catch2/catch.hpp>

#include "tests/session/session_text.h"

namespace {

using rekindle::session::joint_of;
using rekindle::session::Session;
using rekindle::session::session_of;

// One float64[4, 5] input; `body` defines the outputs.
std::string of_matrix(const std::string& body, const std::string& outputs = "%y") {
  return "graph t(%x: float64[4, 5]) {\n  opset 20, rekindle 1, torch 1\n  " + body + "\n  return " +
         outputs + "\n}";
}

at::Tensor matrix() { return at::randn({4, 5}, at::kDouble).requires_grad_(); }

at::Tensor grad(const at::Tensor& y, const at::Tensor& x, const at::Tensor& dy, bool retain = false) {
  return torch::autograd::grad({y}, {x}, {dy}, retain)[0];
}

const std::string kTopK =
    "%v: float64[4, 2], %i: int64[4, 2] = torch::aten.topk.default(%x) "
    "{k = 2, dim = -1, largest = 1, sorted = 1, _results = 2, _differentiable = [0]}";

std::string unary(const std::string& y, const std::string& op, const std::string& x) {
  return "%" + y + ": float64[4, 5] = torch::aten." + op + ".default(%" + x +
         ") {_results = 1, _differentiable = [0]}\n";
}

}  // namespace

TEST_CASE("an operator of PyTorch's and its gradient are eager's", "[session]") {
  const auto session = session_of(of_matrix(kTopK, "%v, %i"), {true});
  for (int step = 0; step < 3; ++step) {
    const at::Tensor x = matrix(), dy = at::randn({4, 2}, at::kDouble);
    const auto [values, indices] = at::topk(x, 2);
    const auto ours = session->forward(std::vector{x}, true);
    REQUIRE(at::equal(ours[0], values));
    REQUIRE(at::equal(ours[1], indices));
    REQUIRE_FALSE(ours[1].requires_grad());
    REQUIRE(at::equal(grad(ours[0], x, dy), grad(values, x, dy)));
  }
  CHECK(session->stats().plans == 1);
  CHECK(session->stats().frames == 1);
}

TEST_CASE("gradients of leaves are eager's, whichever of an operator's results and inputs have one",
          "[session]") {
  const auto two =
      session_of(of_matrix("%a: float64[4, 4], %b: float64[4, 5] = torch::aten.linalg_qr.default(%x) "
                           "{mode = \"reduced\", _results = 2, _differentiable = [0, 1]}",
                           "%a, %b"),
                 {true});
  const auto twice = session_of(
      of_matrix(
          "%y: float64[4, 5] = torch::aten.atan2.default(%x, %x) {_results = 1, _differentiable = [0]}"),
      {true});
  const auto gradient = [](const at::Tensor& loss, const at::Tensor& x) {
    loss.backward();
    return std::exchange(x.mutable_grad(), at::Tensor());
  };
  for (const int used : {0, 1, 2}) {
    const at::Tensor x = matrix();
    const auto [a, b] = at::linalg_qr(x);
    const auto ours = two->forward(std::vector{x}, true);
    const auto loss = [used](const at::Tensor& first, const at::Tensor& second) {
      if (used == 2) return (first * 3).sum() + second.square().sum();
      return used == 0 ? first.square().sum() : second.square().sum();
    };
    CHECK(at::allclose(gradient(loss(ours[0], ours[1]), x), gradient(loss(a, b), x)));
  }
  const auto none = session_of(
      of_matrix("%y: float64[4, 5] = torch::aten.alias.default(%x) {_results = 1, _differentiable = [0]}"),
      {true});
  const auto itself = session_of(
      of_matrix("%y: float64[4, 5] = torch::aten.to.dtype(%x) {dtype = 7, non_blocking = 0, copy = 0, "
                "_results = 1, _differentiable = [0]}"),
      {true});
  for (const auto& session : {none, itself}) {
    const at::Tensor x = matrix(), scale = at::rand({4, 5}, at::kDouble);
    CHECK(at::equal(gradient((session->forward(std::vector{x}, true)[0] * scale).sum(), x), scale));
  }
  const at::Tensor x = matrix(), weights = at::rand({4, 5}, at::kDouble);
  const at::Tensor ours = twice->forward(std::vector{x}, true)[0];
  CHECK(at::allclose(gradient((ours * weights).sum(), x), gradient((at::atan2(x, x) * weights).sum(), x)));
}

TEST_CASE("what a tape saved outlives the arena", "[session]") {
  // Without memory of their own, %a and %b would be overwritten by the operators after them.
  const auto session = session_of(of_matrix("%a: float64[4, 5] = Exp(%x)\n" + unary("b", "sinc", "a") +
                                            "%c: float64[4, 5] = Mul(%b, %b)\n" + unary("d", "sinh", "c") +
                                            "%e: float64[4, 5] = Neg(%d)\n%y: float64[4, 5] = Mul(%e, %e)"),
                                  {true});
  const at::Tensor x = matrix(), dy = at::randn({4, 5}, at::kDouble);
  const at::Tensor eager = at::sinh(at::sinc(x.exp()).square()).neg().square();
  const auto ours = session->forward(std::vector{x}, true);
  CHECK(at::allclose(ours[0], eager));
  CHECK(at::allclose(grad(ours[0], x, dy), grad(eager, x, dy)));
}

TEST_CASE("tapes of several frames in flight do not mix", "[session]") {
  const auto session = session_of(of_matrix(unary("y", "sinc", "x")), {true});
  std::vector<at::Tensor> inputs, outputs;
  for (int i = 0; i < 3; ++i) {
    inputs.push_back(matrix());
    outputs.push_back(session->forward(std::vector{inputs.back()}, true)[0]);
  }
  const at::Tensor dy = at::randn({4, 5}, at::kDouble);
  for (const std::size_t i : {1, 2, 0}) {
    CHECK(at::allclose(grad(outputs[i], inputs[i], dy), grad(at::sinc(inputs[i]), inputs[i], dy)));
  }
  CHECK(session->stats().frames == 3);
}

TEST_CASE("a retained tape is read again, a spent one is not", "[session]") {
  const auto session = session_of(of_matrix(unary("y", "sinc", "x")), {true});
  const at::Tensor x = matrix(), dy = at::randn({4, 5}, at::kDouble);
  const auto ours = session->forward(std::vector{x}, true);
  const at::Tensor first = grad(ours[0], x, dy, true);
  CHECK(at::equal(grad(ours[0], x, dy), first));
  CHECK_THROWS_WITH(grad(ours[0], x, dy), Catch::Contains("a second time"));
}

TEST_CASE("a tape is kept for whichever outputs a backward begins at", "[session]") {
  const auto session = session_of(
      of_matrix(
          kTopK + "\n%y: float64[4, 2] = torch::aten.sinc.default(%v) {_results = 1, _differentiable = [0]}",
          "%v, %y"),
      {true});
  const at::Tensor dy = at::randn({4, 2}, at::kDouble);
  for (const std::size_t output : {1, 0, 1}) {
    const at::Tensor x = matrix();
    const at::Tensor values = std::get<0>(at::topk(x, 2));
    const auto ours = session->forward(std::vector{x}, true);
    CHECK(at::allclose(grad(ours[output], x, dy), grad(output == 0 ? values : at::sinc(values), x, dy)));
  }
}

TEST_CASE("an input modified in place is found where eager finds it", "[session][host]") {
  const auto saves_input = session_of(of_matrix(unary("y", "sinc", "x")), {true});
  const auto saves_nothing =
      session_of(of_matrix("%y: float64[4] = torch::aten.diagonal.default(%x) "
                           "{offset = 0, dim1 = 0, dim2 = 1, _results = 1, _differentiable = [0]}"),
                 {true});
  const at::Tensor x = matrix();
  const auto first = saves_input->forward(std::vector{x}, true),
             second = saves_nothing->forward(std::vector{x}, true);
  {
    const c10::NoGradGuard no_grad;
    x.add_(1);
  }
  CHECK_THROWS_WITH(grad(first[0], x, at::ones({4, 5}, at::kDouble)),
                    Catch::Contains("modified by an inplace operation"));
  CHECK(at::equal(grad(second[0], x, at::ones({4}, at::kDouble)), at::eye(4, 5, at::kDouble)));
}

TEST_CASE("a result that is a view of an input gets memory of its own", "[session]") {
  const auto session = session_of(
      of_matrix("%y: float64[4, 5] = torch::aten.view_as.default(%x, %x) {_results = 1}"), {false});
  const at::Tensor x = at::randn({4, 5}, at::kDouble);
  const auto ours = session->forward(std::vector{x}, false);
  CHECK(at::equal(ours[0], x));
  CHECK_FALSE(ours[0].is_alias_of(x));
}

TEST_CASE("two gradients that PyTorch shares do not share memory", "[session]") {
  const auto session = session_of(R"(graph t(%a: float64[3], %b: float64[3]) {
  opset 20, rekindle 1, torch 1
  %y: float64[3] = torch::aten.add.Tensor(%a, %b) {alpha = int64[]{1}, _results = 1, _differentiable = [0]}
  return %y
})",
                                  {true, true});
  const at::Tensor a = at::randn({3}, at::kDouble).requires_grad_(),
                   b = at::randn({3}, at::kDouble).requires_grad_();
  const at::Tensor dy = at::randn({3}, at::kDouble);
  const auto ours = session->forward(std::vector{a, b}, true);
  const auto gradients = torch::autograd::grad({ours[0]}, {a, b}, {dy});
  CHECK(at::equal(gradients[0], dy));
  CHECK(at::equal(gradients[1], dy));
  CHECK_FALSE(gradients[0].is_alias_of(gradients[1]));
  CHECK_FALSE(gradients[0].is_alias_of(dy));
}

TEST_CASE("without a backward nothing is recorded", "[session]") {
  const auto session = session_of(of_matrix(unary("y", "sinc", "x")), {true});
  const at::Tensor x = matrix();
  const auto ours = session->forward(std::vector{x}, false);
  CHECK(at::allclose(ours[0], at::sinc(x)));
  CHECK_FALSE(ours[0].requires_grad());
}

TEST_CASE("an operator that draws random numbers draws eager's", "[session]") {
  const auto session = session_of(
      of_matrix("%y: float64[4, 5] = torch::aten.dropout.default(%x) "
                "{p = float64[]{0.5}, train = 1, _results = 1, _differentiable = [0], _random = 1}"),
      {true});
  const at::Tensor x = matrix(), dy = at::randn({4, 5}, at::kDouble);
  at::manual_seed(3);
  const auto ours = session->forward(std::vector{x}, true);
  at::manual_seed(3);
  const at::Tensor eager = at::dropout(x, 0.5, true);
  CHECK(at::equal(ours[0], eager));
  CHECK(at::equal(grad(ours[0], x, dy), grad(eager, x, dy)));
}

TEST_CASE("lists, absent tensors and plans for other sizes", "[session]") {
  const auto session = session_of(R"(graph t(%a: float64[2, 3], %i: int64[2]) {
  opset 20, rekindle 1, torch 1
  %s: float64[2, 2, 3] = torch::aten.stack.default(%a, %a) {tensors = 2, dim = 0, _results = 1, _differentiable = [0]}
  %y: float64[2, 2, 2] = torch::aten.index.Tensor(%s, _, _, %i) {indices = 3, _results = 1, _differentiable = [0]}
  return %y
})",
                                  {true, false});
  for (const std::int64_t rows : {2, 5}) {
    const at::Tensor a = at::randn({rows, 3}, at::kDouble).requires_grad_(), i = at::tensor({2, 0});
    const at::Tensor eager = at::stack({a, a}).index_select(2, i), dy = at::randn_like(eager);
    const auto ours = session->forward(std::vector{a, i}, true);
    CHECK(at::equal(ours[0], eager));
    CHECK(at::allclose(grad(ours[0], a, dy), grad(eager, a, dy)));
  }
}

TEST_CASE("what a graph must not name is refused before anything runs", "[session]") {
  const auto message = [](const std::string& node) {
    const auto session = Session::create(joint_of(of_matrix(node), {false}));
    return session.ok() ? std::string("accepted") : session.error().message;
  };
  using Catch::Contains;
  CHECK_THAT(message("%y = torch::aten.no_such_thing.default(%x) {_results = 1}"),
             Contains("there is no operator"));
  CHECK_THAT(message("%y = torch::conv2d(%x) {_results = 1}"), Contains("does not name an operator"));
  CHECK_THAT(message("%y = torch::aten.relu_.default(%x) {_results = 1}"), Contains("writes to its inputs"));
  CHECK_THAT(message("%y = torch::aten.size.int(%x) {dim = 0, _results = 1}"), Contains("not a tensor"));
  CHECK_THAT(message("%y = torch::aten.topk.default(%x) {_results = 1}"),
             Contains("is missing") && Contains("argument 'k'"));
  CHECK_THAT(message("%y = torch::aten.sinc.default(%x) {beta = 1, _results = 1}"),
             Contains("no argument 'beta'"));
  CHECK_THAT(message("%y = torch::aten.diag.default(%x) {diagonal = \"1\", _results = 1}"),
             Contains("is not an int"));
  CHECK_THAT(message("%y = torch::aten.sinc.default(%x, %x) {_results = 1}"), Contains("the node has 2"));
  CHECK_THAT(message("%y = torch::aten.stack.default(%x) {tensors = -1, dim = 0, _results = 1}"),
             Contains("has length -1"));
  CHECK_THAT(message("%y = torch::aten.bernoulli.default(%x) {_results = 1}"),
             Contains("draws random numbers"));
  CHECK_THAT(message("%y = torch::aten.from_file.default() {filename = \"/tmp/x\", size = 1, _results = 1}"),
             Contains("more than compute"));
  CHECK_THAT(message("%y = torch::aten.sinc.default(%x) {_results = 1, _autocast = [999]}"),
             Contains("names no dtypes"));
  CHECK_THAT(
      message(
          "%y = torch::aten.batch_norm.default(%x, _, _, %x, %x) {training = 1, momentum = float64[]{0.1}, "
          "eps = float64[]{0.1}, cudnn_enabled = 0, _results = 1}"),
      Contains("running statistics"));
}

TEST_CASE("a batch norm's results lie as its kernel's, in all layouts", "[session]") {
  const auto check = [](const std::string& dtype, const at::Tensor& x) {
    const std::string channels = ": " + dtype + "[3]", all = ": " + dtype + "[2, 3, 4, 5]";
    const auto session =
        session_of("graph n(%x" + all + ", %s" + channels + ", %m" + channels + ", %v" + channels +
                       ") {\n  opset 20, rekindle 1, torch 1\n"
                       "  %y, %a, %i, %n, %o = torch::aten._native_batch_norm_legit_functional.default(%x, "
                       "%s, _, %m, %v) "
                       "{training = 1, momentum = float64[]{0.1}, eps = float64[]{1e-5}, _results = 5}\n"
                       "  return %y, %a, %i, %n, %o\n}",
                   {false, false, false, false});
    const at::Tensor scale = at::rand({3}, x.options()), mean = at::rand({3}, x.options());
    const at::Tensor variance = at::rand({3}, x.options());
    const auto [y, a, i, n, o] =
        at::_native_batch_norm_legit_functional(x, scale, {}, mean, variance, true, 0.1, 1e-5);
    const std::vector theirs{y, a, i, n, o};
    const auto ours = session->forward(std::vector{x, scale, mean, variance}, false);
    for (std::size_t k = 0; k < theirs.size(); ++k) {
      CHECK(at::equal(ours[k], theirs[k]));
      CHECK(ours[k].scalar_type() == theirs[k].scalar_type());
      CHECK(ours[k].strides() == theirs[k].strides());
    }
  };
  for (const auto& [dtype, type] : std::vector<std::pair<std::string, at::ScalarType>>{
           {"float32", at::kFloat}, {"float64", at::kDouble}}) {
    const at::Tensor x = at::randn({2, 3, 4, 5}).to(type);
    check(dtype, x);
    check(dtype, x.contiguous(at::MemoryFormat::ChannelsLast));
    check(dtype, at::randn({2, 4, 3, 5}).to(type).transpose(1, 2));
  }
}

TEST_CASE("an operator that calls others runs them under autocast where the graph says so",
          "[session][host]") {
  const auto text = [](const std::string& dtype, const std::string& autocast) {
    return "graph t(%x: float32[3, 4], %w: float32[4, 5]) {\n  opset 20, rekindle 1, torch 1\n  %y: " +
           dtype +
           "[3, 5] = torch::aten.einsum.default(%x, %w) {equation = \"bi,io->bo\", tensors = 2, _results = "
           "1, "
           "_differentiable = [0]" +
           autocast + "}\n  return %y\n}";
  };
  const at::Tensor x = at::randn({3, 4}).requires_grad_(), w = at::randn({4, 5});
  const auto cast = session_of(text("bfloat16", ", _autocast = [16, 16]"), {true, false});
  const at::Tensor y = cast->forward(std::vector{x, w}, true)[0];
  CHECK(at::equal(y, x.to(at::kBFloat16).mm(w.to(at::kBFloat16))));
  y.sum().backward();
  CHECK(x.grad().scalar_type() == at::kFloat);
  const auto plain = session_of(text("float32", ""), {true, false});
  CHECK(plain->forward(std::vector{x, w}, true)[0].scalar_type() == at::kFloat);
}
