// Memory plans: what is written down is computed again, nothing else is, and no bit changes.
#include "session/plan/subgraphs.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "session/plan/memory_account.h"
#include "tests/session/session_text.h"

namespace {

using rekindle::session::MemoryAccount;
using rekindle::session::MemoryPlan;
using rekindle::session::planned_values;
using rekindle::session::session_of;
using rekindle::session::SessionOptions;
using rekindle::session::Subgraph;
using rekindle::session::SubgraphKind;
using rekindle::session::TestedSession;
using Tensors = std::vector<at::Tensor>;

constexpr int kLayers = 4;

// The backward reads a normalization's input and results, a tanh's result and a dropout's; not what is
// between a linear layer and its tanh, or before a sum.
std::string model() {
  std::string text =
      "graph g(%x0: float32[n, 64], %s: float32[64], %w: float32[64, 64], %v: float32[64, 64]) {\n"
      "  opset 20, rekindle 1\n  %p = Constant() {value = float32[]{0.25}}\n"
      "  %on = Constant() {value = bool[]{true}}\n";
  for (int i = 0; i < kLayers; ++i) {
    const std::string n = std::to_string(i), x = "%x" + n, next = "%x" + std::to_string(i + 1);
    text += "  %a" + n + ": float32[n, 64] = LayerNormalization(" + x + ", %s) {axis = -1}\n";
    text += "  %h" + n + ": float32[n, 64] = rekindle::Linear(%a" + n + ", %w)\n";
    text += "  %t" + n + ": float32[n, 64] = Tanh(%h" + n + ")\n";
    text += "  %d" + n + ": float32[n, 64], %m" + n + ": bool[n, 64] = Dropout(%t" + n + ", %p, %on)\n";
    text += "  %b" + n + ": float32[n, 64] = rekindle::Linear(%d" + n + ", %v)\n";
    text += "  " + next + ": float32[n, 64] = Add(" + x + ", %b" + n + ")\n";
  }
  const std::string last = "%x" + std::to_string(kLayers);
  text += "  %y: float32[n, 64] = Sigmoid(" + last + ")\n  %l: float32[] = ReduceSum(%y) {keepdims = 0}\n";
  return text + "  return %y, %l\n}\n";
}

std::shared_ptr<TestedSession> session_with(std::optional<MemoryPlan> plan) {
  SessionOptions options;
  options.expected_cotangents = {false, true};
  options.memory_plan = std::move(plan);
  return session_of(model(), {true, true, true, true}, std::move(options));
}

MemoryPlan plan_of(const std::string& kind, std::int64_t recompute) {
  return {"plan.json", {{kind, recompute}}};
}

Tensors inputs() {
  at::manual_seed(3);
  Tensors all = {at::randn({512, 64}), at::rand({64}), at::randn({64, 64}) / 8, at::randn({64, 64}) / 8};
  for (at::Tensor& tensor : all) tensor.requires_grad_();
  return all;
}

Tensors step(const std::shared_ptr<TestedSession>& session, const Tensors& given, std::size_t output = 1) {
  at::manual_seed(5);
  const Tensors outputs = session->forward(given, true);
  for (const at::Tensor& tensor : given) tensor.mutable_grad() = at::Tensor();
  outputs[output].backward(at::ones_like(outputs[output]));
  Tensors results = {outputs[0].detach().clone(), outputs[1].detach().clone()};
  for (const at::Tensor& tensor : given) results.push_back(tensor.grad().clone());
  results.push_back(at::rand({4}));  // as many random numbers were drawn
  return results;
}

bool are_equal(const Tensors& a, const Tensors& b) {
  return std::ranges::equal(
      a, b, [](const at::Tensor& one, const at::Tensor& other) { return at::equal(one, other); });
}

const SubgraphKind& row(const MemoryAccount& account, const std::string& kind) {
  const auto found = std::ranges::find(account.subgraphs, kind, &SubgraphKind::kind);
  if (found == account.subgraphs.end()) FAIL("there is no " << kind);
  return *found;
}

Subgraph place_of(std::string kind, std::uint32_t value) { return {std::move(kind), {value}, {}, {}, {}, 1}; }

}  // namespace

TEST_CASE("alike layers have places of the same kinds", "[session][subgraphs]") {
  const Tensors given = inputs();
  const MemoryAccount account = session_with(MemoryPlan())->memory(given, true);
  for (const SubgraphKind& of : account.subgraphs) {
    INFO(of.kind);
    CHECK(of.recomputed == 0);
    CHECK((of.bytes > 0 && of.share > 0 && of.share < 1));
  }
  CHECK(std::ranges::is_sorted(account.subgraphs, std::ranges::greater{}, &SubgraphKind::bytes));
  const std::size_t value = 512 * 64 * sizeof(float);
  CHECK(row(account, "Linear+Tanh").count == kLayers);
  CHECK(row(account, "Linear+Tanh").bytes == kLayers * value);
  CHECK(row(account, "Dropout").count == kLayers);
  CHECK(row(account, "LayerNormalization").count == kLayers);
  CHECK(row(account, "Linear+Add").count == kLayers - 1);  // the last sum is read by no backward
  CHECK(session_with(MemoryPlan())->memory(given, false).subgraphs.empty());
}

TEST_CASE("a linear layer is a third of its forward and backward, narrow or wide",
          "[session][subgraphs][host]") {
  for (const std::int64_t width : {64, 512, 4096}) {
    INFO("width " << width);
    const std::string wide = std::to_string(width);
    SessionOptions options;
    options.memory_plan = MemoryPlan();
    const auto session =
        session_of("graph g(%x: float32[n, 512], %w: float32[" + wide +
                       ", 512]) {\n  opset 20, rekindle 1\n  %h: float32[n, " + wide +
                       "] = rekindle::Linear(%x, %w)\n  %y: float32[n, " + wide +
                       "] = Gelu(%h)\n  %l: float32[] = ReduceSum(%y) {keepdims = 0}\n  return %l\n}\n",
                   {true, true}, std::move(options));
    const Tensors given = {at::randn({1024, 512}).requires_grad_(), at::randn({width, 512}).requires_grad_()};
    const double share = row(session->memory(given, true), "Linear").share;
    CHECK((share > 0.25 && share < 0.35));
  }
}

TEST_CASE("each number of places of each kind frees what the table says", "[session][subgraphs]") {
  const Tensors given = inputs();
  const auto free = session_with(MemoryPlan());
  const Tensors expected = step(free, given);
  const MemoryAccount table = free->memory(given, true);
  for (const SubgraphKind& of : table.subgraphs) {
    std::size_t saved = free->stats().saved_bytes;
    for (std::size_t places = 0; places <= of.count; ++places) {
      INFO(places << " of " << of.kind);
      const auto session = session_with(plan_of(of.kind, static_cast<std::int64_t>(places)));
      CHECK(are_equal(step(session, given), expected));
      const MemoryAccount account = session->memory(given, true);
      for (const SubgraphKind& other : account.subgraphs)
        CHECK(other.recomputed == (other.kind == of.kind ? places : 0));
      CHECK((session->stats().recomputed > 0) == (places > 0));
      const std::size_t now = session->stats().saved_bytes;
      CHECK((places == 0 ? now == saved : now < saved));
      CHECK(free->stats().saved_bytes - now == of.bytes / of.count * places);
      saved = now;
    }
  }
}

TEST_CASE("a plan of all kinds computes all of them again", "[session][subgraphs]") {
  const Tensors given = inputs();
  const auto free = session_with(MemoryPlan());
  const Tensors expected = step(free, given);
  MemoryPlan plan{"plan.json", {}};
  std::size_t bytes = 0;
  for (const SubgraphKind& of : free->memory(given, true).subgraphs) {
    plan.kinds.push_back({of.kind, -1});
    bytes += of.bytes;
  }
  const auto session = session_with(plan);
  CHECK(are_equal(step(session, given), expected));
  CHECK(session->stats().saved_bytes == free->stats().saved_bytes - bytes);
  for (const SubgraphKind& of : session->memory(given, true).subgraphs) CHECK(of.recomputed == of.count);
  CHECK(are_equal(step(session, given, 0), step(free, given, 0)));  // of another backward than expected
  CHECK(are_equal(step(session, given), expected));
}

TEST_CASE("a plan says what it asks for in vain", "[session][subgraphs]") {
  const std::vector<Subgraph> places = {place_of("Linear", 1), place_of("Tanh", 2), place_of("Linear", 3)};
  const auto linear = planned_values(places, plan_of("Linear", 1));
  CHECK(linear.values == std::vector<std::uint32_t>{1});
  CHECK(linear.unmet.empty());
  CHECK(planned_values(places, plan_of("Linear", -1)).values == std::vector<std::uint32_t>{1, 3});
  CHECK(planned_values(places, plan_of("Gelu", 0)).unmet.empty());
  const auto more = planned_values(places, {"plan.json", {{"Gelu", -1}, {"Tanh", 2}, {"Where", 1}}});
  CHECK(more.values == std::vector<std::uint32_t>{2});
  CHECK(more.unmet == "Gelu, Where; the graph has Linear (2), Tanh (1)");
  CHECK(planned_values({}, plan_of("Gelu", 3)).unmet == "Gelu; the graph has none");
}
