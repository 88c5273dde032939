// The test device finds what it is there to find.
#include "tests/device/test_device.h"

#include <ATen/ATen.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include <catch2/catch.hpp>

using namespace rekindle::testing;

namespace {

at::Tensor on_device(const at::Tensor& tensor, int index = 0) { return tensor.to(device::device(index)); }

// How a child ends that runs `body`.
template <typename Body>
int status_of(const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);  // not Catch's
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

}  // namespace

TEST_CASE("operators compute what they do on the CPU", "[device]") {
  const at::Tensor a = at::randn({4, 6}), b = at::randn({6, 3});
  const at::Tensor x = on_device(a).requires_grad_(), y = on_device(b);
  const at::Tensor z = x.matmul(y).relu().transpose(0, 1).reshape({-1}).slice(0, 2, 9).exp();
  REQUIRE(z.device() == device::device(0));
  z.sum().backward();
  const at::Tensor given = a.clone().requires_grad_();
  const at::Tensor expected = given.matmul(b).relu().transpose(0, 1).reshape({-1}).slice(0, 2, 9).exp();
  expected.sum().backward();
  CHECK(at::allclose(z.detach().cpu(), expected.detach()));
  CHECK(at::allclose(x.grad().cpu(), given.grad()));
}

TEST_CASE("the host may not touch the memory", "[device]") {
  const at::Tensor x = on_device(at::ones({4}));
  CHECK(status_of([] {}) == 0);
  const int status = status_of([&] {
    volatile float first = static_cast<const float*>(x.const_data_ptr())[0];
    (void)first;
  });
  CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV));
}

TEST_CASE("memory holds no numbers before it is written and after it is freed", "[device]") {
  const at::Tensor x = at::empty({8}, at::TensorOptions().device(device::device(0)));
  CHECK(x.isnan().all().item<bool>());
  const auto before = device::live_bytes();
  { const at::Tensor y = on_device(at::ones({1000})); }
  CHECK(device::live_bytes() == before);
  CHECK(at::empty({1000}, x.options()).isnan().all().item<bool>());
}

TEST_CASE("accesses from two streams are ordered, or an error that names both", "[device]") {
  const at::Tensor x = on_device(at::ones({4}));
  x.add_(1);
  {
    const device::StreamScope other(0, 1);
    CHECK_THROWS_WITH(x.mul(2), Catch::Contains("race: aten::mul") && Catch::Contains("aten::add wrote"));
  }
  device::order(0, 0, 1);
  const device::StreamScope other(0, 1);
  CHECK_NOTHROW(x.mul(2));
}

TEST_CASE("parts of one memory that do not touch are no race", "[device]") {
  const at::Tensor x = on_device(at::ones({8}));
  device::order(0, 0, 1);
  x.slice(0, 0, 4).add_(1);
  const device::StreamScope other(0, 1);
  CHECK_NOTHROW(x.slice(0, 4, 8).add_(1));
  CHECK_THROWS(x.slice(0, 3, 5).add_(1));
}

TEST_CASE("tensors of two devices, or of the host, do not mix", "[device]") {
  const at::Tensor x = on_device(at::ones({4})), y = on_device(at::ones({4}), 1);
  CHECK_THROWS_WITH(x.add(y), Catch::Contains("same device"));
  CHECK_THROWS(x.add(at::ones({4})));
  CHECK_NOTHROW(x.add(at::scalar_tensor(2)));
  CHECK(x.to(y.device()).device() == device::device(1));
}

TEST_CASE("random numbers are the device's", "[device]") {
  at::manual_seed(3);
  const at::Tensor first = at::rand({4}), x = on_device(at::empty({4}));
  at::manual_seed(3);
  x.uniform_();
  CHECK(at::equal(at::rand({4}), first));
  CHECK_FALSE(at::equal(x.cpu(), on_device(at::empty({4})).uniform_().cpu()));
}

TEST_CASE("allocations fail when they are asked to, and waits are counted", "[device]") {
  const at::Tensor x = on_device(at::ones({4}));
  device::fail_allocation(2);
  const at::Tensor y = x + 1;
  CHECK_THROWS_AS(x + 1, c10::OutOfMemoryError);
  CHECK_NOTHROW(x + 1);
  device::reset();
  CHECK(y.sum().item<float>() == 8);
  CHECK(device::counts().synchronizations == 1);
  CHECK(device::counts().kernels >= 2);
}
