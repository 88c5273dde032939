// Accounts of memory, held against what the session allocates and against the lifetimes that a reader can
// count.
#include "session/plan/memory_account.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "device/arena_pool.h"
#include "tests/session/session_text.h"

namespace {

using rekindle::session::AccountedValue;
using rekindle::session::MemoryAccount;
using rekindle::session::MemoryUse;
using rekindle::session::session_of;
using Tensors = std::vector<at::Tensor>;

// In kilobytes of 1024: %x 256, %w 16, each of %h, %s, %t and %y 256, as are their gradients.
constexpr const char* kText = R"(
graph g(%x: float32[n, 64], %w: float32[64, 64]) {
  opset 20, rekindle 1
  %h: float32[n, 64] = rekindle::Linear(%x, %w)
  %s: float32[n, 64] = Sigmoid(%h)
  %t: float32[n, 64] = Tanh(%s)
  %y: float32[n, 64] = rekindle::Linear(%t, %w)
  %a: float32[] = ReduceSum(%y) {keepdims = 0}
  return %a
}
)";
constexpr std::int64_t kRows = 1024;
constexpr std::size_t kValue = kRows * 64 * sizeof(float);

Tensors inputs() { return {at::randn({kRows, 64}), at::randn({64, 64}).requires_grad_()}; }

const AccountedValue* find(const MemoryAccount& account, const std::string& name) {
  const auto found = std::ranges::find(account.values, name, &AccountedValue::name);
  return found == account.values.end() ? nullptr : &*found;
}

std::size_t live_at(const MemoryAccount& account, std::int32_t at, bool inside) {
  std::size_t bytes = 0;
  for (const AccountedValue& value : account.values) {
    if (value.offset.has_value() == inside && value.first <= at && at <= value.last) bytes += value.bytes;
  }
  return bytes;
}

bool overlap(const AccountedValue& a, const AccountedValue& b) {
  const bool in_time = a.first <= b.last && b.first <= a.last;
  return in_time && *a.offset < *b.offset + b.bytes && *b.offset < *a.offset + a.bytes;
}

}  // namespace

TEST_CASE("an account's arena is to the byte what a step takes from the device", "[session][host]") {
  const bool record = GENERATE(true, false);
  const auto session = session_of(kText, {false, true});
  const std::size_t predicted = session->memory(inputs(), record).arena_bytes;
  REQUIRE(predicted > 0);
  rekindle::device::ArenaPool::release_all();
  {
    const Tensors outputs = session->forward(inputs(), record);
    if (record) outputs[0].backward();
  }
  CHECK(rekindle::device::ArenaPool::release_all() == predicted);
  CHECK(session->stats().arena_bytes == predicted);
  CHECK(session->stats().plans_made == 1);  // the account's own
}

TEST_CASE("values that live together have places of their own, and the places fill the arena", "[session]") {
  const auto session = session_of(kText, {true, true});
  const MemoryAccount account = session->memory(inputs(), true);
  std::size_t end = 0;
  for (std::size_t i = 0; i < account.values.size(); ++i) {
    const AccountedValue& a = account.values[i];
    INFO("value " << a.name << " of " << a.op);
    REQUIRE(a.first <= a.last);
    if (!a.offset) continue;
    end = std::max(end, *a.offset + a.bytes);
    for (std::size_t j = 0; j < i; ++j) {
      INFO("and " << account.values[j].name);
      if (account.values[j].offset) REQUIRE_FALSE(overlap(a, account.values[j]));
    }
  }
  CHECK(end == account.arena_bytes);
}

TEST_CASE("an account's peaks are the largest sums of what lives at one instruction", "[session]") {
  const bool record = GENERATE(true, false);
  const auto session = session_of(kText, {true, true});
  const MemoryAccount account = session->memory(inputs(), record);
  std::int32_t begin = 0;
  for (const auto* phase : {&account.forward, &account.backward}) {
    std::size_t inside = 0, outside = 0;
    for (std::int32_t at = begin; at < begin + phase->instructions; ++at) {
      inside = std::max(inside, live_at(account, at, true));
      outside = std::max(outside, live_at(account, at, false));
    }
    CHECK(phase->live_peak == inside);
    CHECK(phase->outside_peak == outside);
    if (phase->instructions > 0) CHECK(live_at(account, phase->live_peak_at, true) == inside);
    CHECK(inside <= account.arena_bytes);
    begin += phase->instructions;
  }
  CHECK((account.backward.instructions > 0) == record);
}

TEST_CASE("an account tells what the backward reads, what leaves, and how large it is", "[session]") {
  const auto session = session_of(kText, {false, true});
  const MemoryAccount account = session->memory(inputs(), true);
  const AccountedValue* saved = find(account, "s");
  REQUIRE(saved != nullptr);
  CHECK(saved->use == MemoryUse::kSaved);
  CHECK(saved->saved);
  CHECK(saved->bytes == kValue);
  CHECK(saved->op == "Sigmoid");
  CHECK(saved->last >= account.forward.instructions);
  const AccountedValue* result = find(account, "a");
  REQUIRE(result != nullptr);
  CHECK(result->use == MemoryUse::kResult);
  CHECK_FALSE(result->offset.has_value());
  CHECK(result->bytes == sizeof(float));
  CHECK(result->last == account.forward.instructions + account.backward.instructions - 1);
  std::size_t gradients = 0;
  for (const AccountedValue& value : account.values)
    gradients += value.use == MemoryUse::kGradient ? value.bytes : 0;
  CHECK(gradients == 64 * 64 * sizeof(float));
  CHECK(account.cotangent_bytes == sizeof(float));
}

TEST_CASE("an evaluation saves nothing and needs less", "[session]") {
  const auto session = session_of(kText, {false, true});
  const MemoryAccount trained = session->memory(inputs(), true), evaluated = session->memory(inputs(), false);
  CHECK(evaluated.arena_bytes < trained.arena_bytes);
  CHECK(std::ranges::none_of(evaluated.values, &AccountedValue::saved));
  CHECK(evaluated.cotangent_bytes == 0);
}

TEST_CASE("a value written over another one counts once at each instruction", "[session]") {
  const auto session = session_of(kText, {false, false});
  const MemoryAccount account = session->memory(inputs(), false);
  const AccountedValue *h = find(account, "h"), *s = find(account, "s");
  REQUIRE(h != nullptr);
  REQUIRE(s != nullptr);
  CHECK(*h->offset == *s->offset);
  CHECK(h->last + 1 == s->first);
  CHECK(live_at(account, s->first, true) == kValue);
}

TEST_CASE("what depends on data is named, not counted as nothing", "[session]") {
  const auto session = session_of(R"(
graph g(%x: float32[n]) {
  opset 20, rekindle 1
  %i: int64[1, k] = NonZero(%x)
  return %i
}
)",
                                  {false});
  const MemoryAccount account = session->memory(Tensors{at::ones({8})}, false);
  REQUIRE_FALSE(account.uncounted.empty());
  CHECK(account.uncounted[0].op == "NonZero");
  CHECK(std::ranges::any_of(account.uncounted,
                            [](const auto& value) { return value.use == MemoryUse::kResult; }));
  CHECK(find(account, "i") == nullptr);
}

TEST_CASE("wrong inputs are the errors of a forward", "[session]") {
  const auto session = session_of(kText, {false, true});
  CHECK_THROWS_WITH(session->memory(Tensors{at::ones({8, 64})}, true), Catch::Contains("takes 2 inputs"));
}
