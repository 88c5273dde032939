// Sessions on the test device: the results of the CPU, no host access to device memory, no race, no wait.
#include "session/session.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>

#include <catch2/catch.hpp>

#include "device/arena_pool.h"
#include "device/stream_order.h"
#include "session/run/interpreter.h"
#include "tests/device/test_device.h"
#include "tests/support/graph_text.h"

using namespace rekindle::testing;
using rekindle::session::Session;

namespace {

constexpr const char* kPerceptron = R"(
graph mlp(%x: float64[4, 8], %w1: float64[16, 8], %b1: float64[16], %w2: float64[3, 16]) {
  opset 20, rekindle 1
  %h: float64[4, 16] = rekindle::Linear(%x, %w1, %b1)
  %a: float64[4, 16] = Gelu(%h)
  %half: float64[1] = Constant() {value = float64[1]{0.5}}
  %s: float64[4, 16] = Mul(%a, %half)
  %y: float64[4, 3] = rekindle::Linear(%s, %w2)
  return %y
}
)";

std::shared_ptr<Session> made(std::string_view text, const std::vector<bool>& needs_gradient) {
  auto joint = rekindle::autodiff::differentiate(*graph_from(text), needs_gradient);
  REQUIRE(joint.ok());
  auto session = Session::create(std::move(joint).value());
  REQUIRE(session.ok());
  return *session;
}

std::shared_ptr<Session> perceptron() { return made(kPerceptron, {true, true, true, true}); }

at::Tensor eager(const std::vector<at::Tensor>& in) {
  return at::linear(at::gelu(at::linear(in[0], in[1], in[2])) * 0.5, in[3]);
}

std::vector<at::Tensor> inputs(at::Device device) {
  std::vector<at::Tensor> made;
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(7);
  for (const std::vector<std::int64_t>& sizes :
       std::initializer_list<std::vector<std::int64_t>>{{4, 8}, {16, 8}, {16}, {3, 16}})
    made.push_back(at::randn(sizes, generator, at::kDouble).to(device).requires_grad_());
  return made;
}

// Gradients, which are not there any more afterwards.
std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& in) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& tensor : in) {
    gradients.push_back(tensor.grad());
    tensor.mutable_grad() = at::Tensor();
  }
  return gradients;
}

// Of the chain that makes the gradients.
std::size_t count_nodes(std::shared_ptr<torch::autograd::Node> node) {
  std::size_t count = 0;
  for (; node != nullptr && node->name() == "RekindleBackward"; ++count)
    node = node->num_outputs() == 0 ? nullptr : node->next_edge(node->num_outputs() - 1).function;
  return count;
}

void check_close(const std::vector<at::Tensor>& ours, const std::vector<at::Tensor>& theirs) {
  REQUIRE(ours.size() == theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    INFO(i);
    CHECK(at::allclose(ours[i].detach().cpu(), theirs[i].detach().cpu(), 1e-10, 1e-12));
  }
}

}  // namespace

TEST_CASE("a session on a device computes what it does on the CPU, without a wait", "[device]") {
  const auto session = perceptron();
  for (const int index : {0, 1}) {
    const auto here = inputs(device::device(index)), there = inputs(at::kCPU);
    for (int step = 0; step < 3; ++step) {
      device::reset();
      const at::Tensor y = session->forward(here, true).at(0);
      CHECK(y.device() == device::device(index));
      y.sum().backward();
      CHECK(device::counts().synchronizations == (step == 0 ? 1 : 0));  // the plan's constant goes there once
      const at::Tensor expected = eager(there);
      expected.sum().backward();
      check_close({y}, {expected});
      check_close(gradients_of(here), gradients_of(there));
    }
  }
}

TEST_CASE("a forward on one stream and the next on another do not meet in the arena", "[device]") {
  const auto session = perceptron();
  const auto here = inputs(device::device(0)), there = inputs(at::kCPU);
  session->prepare(here, true);
  device::reset();
  std::vector<at::Tensor> results;
  std::vector<std::vector<at::Tensor>> gradients;
  for (int step = 0; step < 4; ++step) {
    const device::StreamScope scope(0, 1 + step % 2);
    results.push_back(session->forward(here, true).at(0));
    gradients.push_back(torch::autograd::grad({results.back()}, here, {at::ones_like(results.back())}));
  }
  CHECK(session->stats().frames == 1);
  CHECK(device::counts().synchronizations == 0);
  device::reset();
  const at::Tensor expected = eager(there);
  expected.sum().backward();
  const auto wanted = gradients_of(there);
  for (const at::Tensor& result : results) check_close({result}, {expected});
  for (const auto& found : gradients) check_close(found, wanted);
}

TEST_CASE("a backward runs where its forward did, whatever the current stream", "[device]") {
  const auto session = perceptron();
  const auto here = inputs(device::device(0)), there = inputs(at::kCPU);
  session->prepare(here, true);
  device::reset();
  at::Tensor result, cotangent;
  {
    const device::StreamScope scope(0, 2);
    result = session->forward(here, true).at(0);
    cotangent = at::ones_like(result);
  }
  REQUIRE(count_nodes(result.grad_fn()) > 1);
  const auto before = device::counts();
  const auto gradients = torch::autograd::grad({result}, here, {cotangent});
  const auto after = device::counts();
  CHECK(after.kernels - before.kernels == after.kernels_on[2] - before.kernels_on[2]);
  device::reset();
  eager(there).sum().backward();
  check_close(gradients, gradients_of(there));
}

TEST_CASE("memory that streams use in turn goes to nobody before all have used it", "[device]") {
  const auto options = at::TensorOptions().dtype(at::kByte).device(device::device(0));
  device::reset();
  {
    rekindle::device::StreamOrder order;
    at::Tensor memory;
    for (const int stream : {1, 2}) {
      const device::StreamScope scope(0, stream);
      if (!memory.defined()) memory = at::empty({4096}, options);
      order.enter(memory);
      memory.zero_();
    }
  }
  const device::StreamScope scope(0, 1);  // that it was allocated on
  CHECK_NOTHROW(at::zeros({4096}, options));
}

TEST_CASE("a graph that is interpreted reads its constants on the host", "[device]") {
  const auto graph = graph_from(R"(
graph g(%x: float64[3]) {
  opset 20, rekindle 1
  %axes: int64[1] = Constant() {value = int64[1]{0}}
  %y: float64[1, 3] = Unsqueeze(%x, %axes)
  return %y
}
)");
  const at::Tensor x = at::randn({3}, at::kDouble);
  const auto results = rekindle::session::interpret(*graph, {x.to(device::device(0))});
  check_close({results.at(0).toTensor()}, {x.unsqueeze(0)});
}

TEST_CASE("an arena that cannot be allocated leaves no frame behind", "[device]") {
  const auto session = perceptron();
  const auto here = inputs(device::device(0));
  session->prepare(here, true);
  rekindle::device::ArenaPool::release_all();  // the one that is allocated next is the arena
  device::fail_allocation(1);
  CHECK_THROWS_AS(session->forward(here, true), c10::OutOfMemoryError);
  CHECK_NOTHROW(session->forward(here, true));
  CHECK(session->stats().frames == 1);
}

TEST_CASE("the pool takes no arena for used that it could not allocate", "[device]") {
  rekindle::device::ArenaPool pool(device::device(0));
  auto first = pool.take(2048), second = pool.take(2048), third = pool.take(4096);
  for (auto* const arena : {&third, &second, &first}) pool.give_back(std::move(*arena));
  device::fail_allocation(1);
  CHECK_THROWS_AS(pool.take(4097), c10::OutOfMemoryError);
  CHECK(pool.idle_bytes() == 2048);  // room was made for it
  third = pool.take(4096);
  CHECK(pool.idle_bytes() == 2048);  // no more is in use than this one
}

TEST_CASE("an arena stays with the stream that used it last", "[device]") {
  rekindle::device::ArenaPool pool(device::device(0));
  auto first = pool.take(1024), second = pool.take(1024);
  {
    const device::StreamScope scope(0, 1);
    first->order.enter(first->memory);
  }
  const void* const place = second->memory.const_data_ptr();
  pool.give_back(std::move(second));
  pool.give_back(std::move(first));
  CHECK(pool.take(1024)->memory.const_data_ptr() == place);
}

TEST_CASE("inputs on two devices are refused", "[device]") {
  const auto session = perceptron();
  auto here = inputs(device::device(0));
  here[1] = here[1].detach().to(device::device(1));
  CHECK_THROWS_WITH(session->forward(here, true), Catch::Contains("same device"));
}

TEST_CASE("attention is computed without the CPU's own kernels", "[device]") {
  for (const bool causal : {false, true}) {
    const std::string text = R"(
graph g(%q: float64[2, 3, 5, 4], %k: float64[2, 3, 7, 4], %v: float64[2, 3, 7, 4], %m: float64[5, 7]) {
  opset 20, rekindle 1
  %y: float64[2, 3, 5, 4], %l: float64[2, 3, 5] = rekindle::ScaledDotProductAttention(%q, %k, %v, %m))" +
                             std::string(causal ? " {is_causal = 1}" : "") + R"(
  return %y
}
)";
    const auto session = made(text, {true, true, true, false});
    std::vector<at::Tensor> here, there;
    for (const auto& sizes :
         std::vector<std::vector<std::int64_t>>{{2, 3, 5, 4}, {2, 3, 7, 4}, {2, 3, 7, 4}, {5, 7}}) {
      const at::Tensor x = at::randn(sizes, at::kDouble);
      const bool is_mask = sizes.size() == 2;
      there.push_back(x.clone().requires_grad_(!is_mask));
      here.push_back(x.to(device::device(0)).requires_grad_(!is_mask));
    }
    const at::Tensor ours = session->forward(here, true).at(0), theirs = session->forward(there, true).at(0);
    ours.square().sum().backward();
    theirs.square().sum().backward();
    check_close({ours}, {theirs});
    here.pop_back();
    there.pop_back();
    check_close(gradients_of(here), gradients_of(there));
  }
}
