// LayerNormalization in sessions: our kernels or ATen's, by dtype and by columns.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <catch2/catch.hpp>

#include "tests/session/session_text.h"

namespace {

using rekindle::session::TestedSession;

std::shared_ptr<TestedSession> session_of(const std::string& dtype, std::int64_t columns) {
  const std::string vector = dtype + "[" + std::to_string(columns) + "]",
                    matrix = dtype + "[4, " + std::to_string(columns) + "]";
  return rekindle::session::session_of("graph t(%x: " + matrix + ", %w: " + vector + ", %b: " + vector +
                                           ") {\n  opset 20, rekindle 1\n  %y: " + matrix +
                                           " = LayerNormalization(%x, %w, %b) {axis = -1}\n  return %y\n}",
                                       {true, true, true});
}

}  // namespace

TEST_CASE("layer normalization and its gradients are eager's in every dtype", "[session]") {
  const auto [name, dtype, tolerance] =
      GENERATE(table<std::string, at::ScalarType, double>({{"float64", at::kDouble, 1e-12},
                                                           {"float32", at::kFloat, 1e-5},
                                                           {"bfloat16", at::kBFloat16, 3e-2},
                                                           {"float16", at::kHalf, 4e-3}}));
  const auto session = session_of(name, 9);
  const auto leaf = [&, type = dtype](at::IntArrayRef sizes) {
    return at::randn(sizes, at::kDouble).to(type).requires_grad_();
  };
  const std::vector<at::Tensor> inputs{leaf({4, 9}), leaf({9}), leaf({9})};
  const at::Tensor ours = session->forward(inputs, true)[0];
  const at::Tensor theirs = at::layer_norm(inputs[0], {9}, inputs[1], inputs[2], 1e-5);
  const at::Tensor dy = at::randn({4, 9}, at::kDouble).to(dtype);
  CHECK(at::allclose(ours, theirs, tolerance, tolerance));
  const auto mine = torch::autograd::grad({ours}, inputs, {dy}),
             eagers = torch::autograd::grad({theirs}, inputs, {dy});
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    CHECK(mine[i].scalar_type() == eagers[i].scalar_type());
    CHECK(at::allclose(mine[i], eagers[i], tolerance, tolerance));
  }
}

TEST_CASE("over one column, what rounding leaves of a gradient of 0 is what eager leaves",
          "[session][host]") {
  const auto session = session_of("float32", 1);
  const std::vector<at::Tensor> inputs{at::randn({4, 1}).requires_grad_(), at::randn({1}).requires_grad_(),
                                       at::randn({1}).requires_grad_()};
  const at::Tensor dy = at::randn({4, 1});
  const at::Tensor theirs = at::layer_norm(inputs[0], {1}, inputs[1], inputs[2], 1e-5);
  const auto mine = torch::autograd::grad({session->forward(inputs, true)[0]}, inputs, {dy}),
             eagers = torch::autograd::grad({theirs}, inputs, {dy});
  for (std::size_t i = 0; i < inputs.size(); ++i) CHECK(at::equal(mine[i], eagers[i]));
}
