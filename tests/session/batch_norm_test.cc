// Split batch norms in sessions: results, layouts and gradients are those of eager's batch norm and relu.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "src/passes/pass_manager.h"
#include "tests/session/session_text.h"

namespace {

using rekindle::session::joint_of;
using rekindle::session::session_of;
using rekindle::session::TestedSession;

struct Model {
  std::string sizes;
  std::int64_t channels;
  bool affine, relu;
};

// x goes through an op of its own, so that its memory is the session's. PyTorch's operators keep layouts.
std::string text_of(const Model& model) {
  const std::string all = ": float32" + model.sizes,
                    row = ": float32[" + std::to_string(model.channels) + "]";
  const std::string parameters = model.affine ? "%s, %b" : "_, _";
  const auto unary = [&](const std::string& y, const std::string& op, const std::string& x) {
    return "  %" + y + all + " = torch::aten." + op + ".default(%" + x +
           ") {_results = 1, _differentiable = [0]}\n";
  };
  return "graph t(%i" + all + ", %s" + row + ", %b" + row + ", %m" + row + ", %v" + row +
         ") {\n  opset 20, rekindle 1, torch 1\n" + unary("x", "neg", "i") + "  %y" + all + ", %a" + row +
         ", %r" + row + ", %n" + row + ", %o" + row +
         " = torch::aten._native_batch_norm_legit_functional.default(%x, " + parameters +
         ", %m, %v) {training = 1, momentum = float64[]{0.3}, eps = float64[]{1e-3}, _results = 5, "
         "_differentiable = [0]}\n" +
         unary("z", model.relu ? "relu" : "neg", "y") + unary("e", "exp", "z") + "  return %e, %n, %o\n}";
}

std::ptrdiff_t count(const rekindle::autodiff::JointGraph& joint, const std::string& op) {
  return std::ranges::count(joint.graph->nodes(), op, [](const auto& node) { return node->op_type(); });
}

std::shared_ptr<TestedSession> split_session(const Model& model) {
  auto joint = joint_of(text_of(model), {true, model.affine, model.affine, false, false});
  const std::string_view pass = "split_batch_norms";
  REQUIRE(rekindle::passes::run_passes(*joint.graph, std::span(&pass, 1), {}).ok());
  CHECK(count(joint, "BatchNormalize") == 1);
  return session_of(std::move(joint));
}

std::vector<at::Tensor> eager(const Model& model, const std::vector<at::Tensor>& inputs) {
  const auto parameter = [&](std::size_t i) {
    return model.affine ? std::optional(inputs[i]) : std::nullopt;
  };
  const auto [y, a, r, n, o] = at::_native_batch_norm_legit_functional(
      inputs[0].neg(), parameter(1), parameter(2), inputs[3], inputs[4], true, 0.3, 1e-3);
  return {(model.relu ? y.relu() : y.neg()).exp(), n, o};
}

void check_session(const Model& model, const at::Tensor& x) {
  const auto session = split_session(model);
  for (int step = 0; step < 2; ++step) {
    const auto channels = [&] { return at::rand({model.channels}, x.options()); };
    const std::vector<at::Tensor> inputs{
        (x * (step + 1)).detach().requires_grad_(), channels().sub_(0.3).requires_grad_(model.affine),
        channels().sub_(0.5).requires_grad_(model.affine), channels(), channels()};
    const auto ours = session->forward(inputs, true), theirs = eager(model, inputs);
    for (std::size_t i = 0; i < theirs.size(); ++i) {
      CHECK(at::allclose(ours[i], theirs[i], 1e-5, 1e-6));
      CHECK(ours[i].strides() == theirs[i].strides());
    }
    const std::vector<at::Tensor> wanted(inputs.begin(), inputs.begin() + (model.affine ? 3 : 1));
    const at::Tensor dy = at::randn_like(theirs[0]);
    const auto mine = torch::autograd::grad({ours[0]}, wanted, {dy}),
               eagers = torch::autograd::grad({theirs[0]}, wanted, {dy});
    for (std::size_t i = 0; i < wanted.size(); ++i) CHECK(at::allclose(mine[i], eagers[i], 1e-4, 1e-5));
  }
}

}  // namespace

TEST_CASE("a split batch norm is eager's, in every layout", "[session]") {
  const bool affine = GENERATE(true, false), relu = GENERATE(true, false);
  const Model image{"[2, 3, 4, 5]", 3, affine, relu}, row{"[6, 33]", 33, affine, relu},
      volume{"[2, 3, 4, 5, 6]", 3, affine, relu}, point{"[4, 5, 1, 1]", 5, affine, relu};
  const at::Tensor x = at::randn({2, 3, 4, 5}), y = at::randn({2, 3, 4, 5, 6});
  check_session(image, x);
  check_session(image, x.contiguous(at::MemoryFormat::ChannelsLast));
  check_session(image, at::randn({2, 4, 3, 5}).transpose(1, 2));
  check_session(row, at::randn({6, 33}));
  check_session(row, at::randn({33, 6}).t());
  check_session(volume, y);
  check_session(volume, y.contiguous(at::MemoryFormat::ChannelsLast3d));
  check_session(point, at::randn({4, 5, 1, 1}));
  check_session(point, at::randn({4, 5, 1, 1}).contiguous(at::MemoryFormat::ChannelsLast));
}

TEST_CASE("a split batch norm of nothing raises as eager does", "[session][host]") {
  const auto session = split_session({"[n, 3, 4, 5]", 3, true, true});
  const at::Tensor channels = at::rand({3});
  CHECK_THROWS_WITH(
      session->forward(std::vector{at::rand({0, 3, 4, 5}), channels, channels, channels, channels}, false),
      Catch::Matchers::Contains("at least one element"));
}
