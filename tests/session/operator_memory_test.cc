// What operators of PyTorch allocate comes from where the caller has memory, and nothing else changes.
#include "device/operator_memory.h"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <thread>

namespace rekindle::device {
namespace {

using Tensors = std::vector<at::Tensor>;
constexpr std::int64_t kLarge = 1 << 20;  // elements

at::Tensor convolution(const at::Tensor& x, const at::Tensor& weight) {
  return at::convolution(x, weight, {}, {1, 1}, {1, 1}, {1, 1}, false, {0, 0}, 1);
}

// Calls `run` as an instruction does, which has the turns of its last call.
template <typename Run>
Tensors call(const Tensors& outs, std::vector<int>& turns, Run run) {
  std::vector<const at::Tensor*> places;
  for (const at::Tensor& out : outs) places.push_back(&out);
  OperatorMemory memory(places, turns);
  Tensors results = run();
  memory.close();
  turns = memory.turns_of(results);
  return results;
}

bool is_same_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.const_data_ptr() == b.const_data_ptr();
}

TEST_CASE("a convolution writes into the given memory from the second call on", "[session][memory]") {
  const at::Tensor x = at::randn({4, 32, 28, 28}), weight = at::randn({64, 32, 3, 3});
  const at::Tensor expected = convolution(x, weight);
  const at::Tensor out = at::empty_like(expected);
  std::vector<int> turns;
  CHECK(at::equal(call({out}, turns, [&] { return Tensors{convolution(x, weight)}; })[0], expected));
  CHECK(turns.at(0) != OperatorMemory::kNone);
  for (int i = 0; i < 3; ++i) {
    out.zero_();
    const Tensors results = call({out}, turns, [&] { return Tensors{convolution(x, weight)}; });
    CHECK(is_same_memory(results[0], out));
    CHECK(at::equal(out, expected));
    CHECK(is_given(out.const_data_ptr()));  // by the result, which is still there
  }
  CHECK_FALSE(is_given(out.const_data_ptr()));
}

TEST_CASE("results of one size find their own places", "[session][memory]") {
  const Tensors outs = {at::empty({300}), at::empty({300}), at::empty({300})};
  const auto in_another_order = [] {
    const at::Tensor last = at::full({300}, 3.0), scratch = at::full({300}, 4.0),
                     first = at::full({300}, 1.0);
    return Tensors{first, at::full({300}, 2.0), last};
  };
  std::vector<int> turns;
  call(outs, turns, in_another_order);
  CHECK(turns == std::vector<int>{2, 3, 0});
  const Tensors results = call(outs, turns, in_another_order);
  for (std::size_t i = 0; i < outs.size(); ++i) {
    CHECK(is_same_memory(results[i], outs[i]));
    CHECK(at::equal(outs[i], at::full({300}, static_cast<double>(i + 1))));
  }
}

TEST_CASE("a result that is no allocation of its size has no place", "[session][memory]") {
  const at::Tensor out = at::empty({kLarge}), whole = at::ones({2 * kLarge});
  std::vector<int> turns;
  for (int i = 0; i < 2; ++i) {
    const Tensors results = call({out}, turns, [&] { return Tensors{whole.slice(0, 0, kLarge)}; });
    CHECK(turns == std::vector<int>{OperatorMemory::kNone});
    CHECK(is_same_memory(results[0], whole));
  }
}

TEST_CASE("operators use the same workspace one after the other", "[session][memory]") {
  const auto address = [] {
    std::vector<int> turns;
    const void* found = nullptr;
    call({}, turns, [&] {
      const at::Tensor first = at::ones({kLarge}), second = at::ones({kLarge});
      CHECK_FALSE(is_same_memory(first, second));
      CHECK(at::equal(first, second));
      found = first.const_data_ptr();
      return Tensors();
    });
    return found;
  };
  const void* const first = address();
  CHECK(address() == first);
  CHECK_FALSE(is_given(first));
}

TEST_CASE("what an operator keeps is not given to another", "[session][memory]") {
  at::Tensor kept;
  std::vector<int> turns;
  call({}, turns, [&] {
    kept = at::full({kLarge}, 5.0);
    return Tensors();
  });
  call({}, turns, [&] {
    CHECK_FALSE(is_same_memory(at::full({kLarge}, 6.0), kept));
    return Tensors();
  });
  CHECK(at::equal(kept, at::full({kLarge}, 5.0)));
}

TEST_CASE("another thread may free what an operator has allocated", "[session][memory]") {
  std::vector<int> turns;
  const void* address = nullptr;
  call({}, turns, [&] {
    at::Tensor made = at::ones({kLarge});
    address = made.const_data_ptr();
    std::thread([last = std::move(made)]() mutable { last.reset(); }).join();
    return Tensors();
  });
  CHECK_FALSE(is_given(address));
}

TEST_CASE("a workspace grows where it is, and idle ones give their pages back", "[session][memory]") {
  auto workspace = Workspace::take();
  REQUIRE(workspace != nullptr);
  REQUIRE(workspace->reach(100));
  char* const begin = workspace->begin();
  begin[99] = 7;
  REQUIRE(workspace->reach(10 << 20));
  CHECK(begin == workspace->begin());
  CHECK(begin[99] == 7);
  begin[(10 << 20) - 1] = 8;
  CHECK_FALSE(workspace->reach(std::size_t{1} << 50));
  Workspace::give_back(std::move(workspace));
  CHECK(Workspace::release_all() >= (10 << 20));
  CHECK(Workspace::release_all() == 0);
  workspace = Workspace::take();
  REQUIRE(workspace->reach(100));
  CHECK(workspace->begin()[99] == 0);
}

TEST_CASE("what a workspace was not used for in a while goes back", "[session][memory]") {
  Workspace::release_all();
  auto workspace = Workspace::take();
  REQUIRE(workspace->reach(8 << 20));
  for (int i = 0; i < 3000; ++i) {
    Workspace::give_back(std::move(workspace));
    workspace = Workspace::take();
    REQUIRE(workspace->reach(1 << 20));
  }
  Workspace::give_back(std::move(workspace));
  CHECK(Workspace::release_all() <= (2 << 20));
}

}  // namespace
}  // namespace rekindle::device
