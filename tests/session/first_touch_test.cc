// Memory that is made ready for gradients goes to them, or back.
#include "device/first_touch.h"

#include <ATen/ATen.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <memory>
#include <vector>

#include "device/cpu_allocator.h"
#include "session/session.h"
#include "tests/session/session_text.h"

namespace {

using rekindle::device::CpuAllocator;
using rekindle::device::FirstTouch;
using rekindle::device::gradient_bytes;
using rekindle::session::kTanh;
using rekindle::session::session_of;

// Sizes that nothing else allocates, or has freed; each test has its own.
constexpr std::int64_t kElements = (1 << 17) + 16;

bool has_one_core() {
  cpu_set_t cores;
  REQUIRE(sched_getaffinity(0, sizeof cores, &cores) == 0);
  return CPU_COUNT(&cores) == 1;
}

std::size_t bytes_of(std::int64_t elements) { return static_cast<std::size_t>(elements) * sizeof(float); }

TEST_CASE("gradients that a backward will allocate are those of leaves that want one and have none",
          "[session][memory][host]") {
  const at::Tensor weight = at::zeros({4, 8}).requires_grad_(), has_one = at::zeros({3}).requires_grad_();
  has_one.mutable_grad() = at::ones({3});
  const at::Tensor meta = at::empty({2}, at::TensorOptions().device(at::kMeta)).requires_grad_();
  const std::vector<at::Tensor> leaves{weight, has_one, meta, at::zeros({5}), weight * 2};
  CHECK(gradient_bytes(leaves) == std::vector<std::size_t>{4 * 8 * sizeof(float)});
}

TEST_CASE("a tensor of an expected size gets the block that was written to", "[session][memory][host]") {
  if (has_one_core()) return;
  const std::size_t bytes = bytes_of(kElements);
  FirstTouch ahead({bytes, 64});
  REQUIRE(ahead.bytes() == bytes);
  ahead.stop();
  ahead.stop();
  const at::Tensor first = at::empty({kElements}), second = at::empty({kElements});
  CHECK(first.const_data_ptr() != second.const_data_ptr());
  CHECK(CpuAllocator::install().kept()->allocated_ahead() == 0);
}

TEST_CASE("a size that was freed before is left to what is kept", "[session][memory][host]") {
  at::empty({kElements + 16});
  CpuAllocator::install();
  at::empty({kElements + 16});
  CHECK(FirstTouch({bytes_of(kElements + 16)}).bytes() == 0);
}

TEST_CASE("the next forward that records takes the memory, and its backward what it needs",
          "[session][memory][host]") {
  if (has_one_core()) return;
  constexpr const char* text = R"(
graph g(%x: float32[8, 64], %w: float32[64, 2050]) {
  opset 20, rekindle 1
  %y: float32[8, 2050] = MatMul(%x, %w)
  return %y
}
)";
  const std::int64_t elements = 64 * 2050;
  const auto session = session_of(text, {false, true});
  const std::vector<at::Tensor> in{at::ones({8, 64}), at::ones({1}).repeat({64, 2050}).requires_grad_()};
  const auto memory = std::make_shared<FirstTouch>(std::vector{bytes_of(elements), bytes_of(elements + 32)});
  const std::size_t both = memory->bytes();
  REQUIRE(both > bytes_of(elements + 32));
  session->set_first_touch(memory);
  session->forward(in, false);
  CHECK(memory.use_count() == 2);
  const auto ahead = [] { return CpuAllocator::install().kept()->allocated_ahead(); };
  const at::Tensor result = session->forward(in, true).at(0);
  CHECK(ahead() == both);
  result.sum().backward();
  CHECK(memory.use_count() == 1);
  CHECK(ahead() == bytes_of(elements + 32));
  CHECK(in[1].grad().defined());
}

TEST_CASE("a forward whose outputs die frees the memory", "[session][memory][host]") {
  if (has_one_core()) return;
  const auto session = session_of(kTanh, {true});
  auto memory = std::make_shared<FirstTouch>(std::vector{bytes_of(kElements + 64)});
  REQUIRE(memory->bytes() > 0);
  const std::weak_ptr dropped = memory;
  session->set_first_touch(std::move(memory));
  at::Tensor result = session->forward(std::vector{at::randn({5}, at::kDouble).requires_grad_()}, true).at(0);
  CHECK_FALSE(dropped.expired());
  result.reset();
  CHECK(dropped.expired());
  CHECK(CpuAllocator::install().kept()->allocated_ahead() == 0);
}

TEST_CASE("a forked child lets the memory go", "[session][memory][host]") {
  if (has_one_core()) return;
  auto ahead = std::make_unique<FirstTouch>(std::vector{bytes_of(kElements + 48) * 64});
  REQUIRE(ahead->bytes() > 0);
  const pid_t child = fork();
  if (child == 0) {
    ahead.reset();
    _exit(0);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

}  // namespace
