#include "device/kernel_compiler.h"

#include <unistd.h>

#include <catch2/catch.hpp>

#include <chrono>
#include <fstream>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

using namespace rekindle::device;

namespace {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
const c10::Device kDevice(kType, 0);

class Counted : public RuntimeKernel {
 public:
  void launch(unsigned, unsigned, const std::vector<std::int64_t>&, c10::Device) override {}
};

// Compiles when it is let; what is "wrong" never.
class Waiting : public KernelCompiler {
 public:
  std::unique_ptr<RuntimeKernel> compile(const std::string& source, const std::string&,
                                         c10::Device) override {
    const std::lock_guard lock(may_go_on);
    ++compiled;
    if (source == "wrong") throw std::runtime_error("a word is missing");
    return std::make_unique<Counted>();
  }
  std::mutex may_go_on;
  std::atomic<int> compiled = 0;
};

void wait_for(const CompiledKernel& kernel) {
  for (int i = 0; i < 5000 && !kernel.is_done(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  REQUIRE(kernel.is_done());
}

std::size_t address_space() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::size_t>(getpagesize());
}

struct Compilers {
  explicit Compilers(bool at_once = false) { set_kernel_compiler(kType, compiler, at_once); }
  ~Compilers() { set_kernel_compiler(kType, nullptr); }
  std::shared_ptr<Waiting> compiler = std::make_shared<Waiting>();
};

}  // namespace

TEST_CASE("A kernel is compiled beside the caller's work") {
  const Compilers compilers;
  std::unique_lock hold(compilers.compiler->may_go_on);
  const auto kernel = compiled_kernel("a", "name", kDevice);
  CHECK(kernel->get() == nullptr);
  CHECK_FALSE(kernel->is_done());
  hold.unlock();
  wait_for(*kernel);
  CHECK(kernel->get() != nullptr);
}

TEST_CASE("A source is compiled once for a device") {
  const Compilers compilers;
  const auto kernel = compiled_kernel("a", "name", kDevice);
  CHECK(compiled_kernel("a", "name", kDevice) == kernel);
  CHECK(compiled_kernel("a", "name", c10::Device(kType, 1)) != kernel);
  CHECK(compiled_kernel("b", "name", kDevice) != kernel);
  wait_for(*compiled_kernel("b", "name", kDevice));
}

TEST_CASE("What cannot be compiled has no kernel, and does not hinder others") {
  const Compilers compilers;
  const auto wrong = compiled_kernel("wrong", "name", kDevice),
             right = compiled_kernel("right", "name", kDevice);
  wait_for(*wrong);
  wait_for(*right);
  CHECK(wrong->get() == nullptr);
  CHECK(right->get() != nullptr);
}

TEST_CASE("Threads that have nothing left to compile keep no stack") {
  const Compilers compilers;
  const std::size_t before = address_space();
  for (int i = 0; i < 100; ++i) {
    wait_for(*compiled_kernel("burst " + std::to_string(i), "name", kDevice));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the thread ends
  }
  CHECK(address_space() < before + (std::size_t{200} << 20));  // a stack has 8 MB
}

TEST_CASE("A compiler may be waited for") {
  const Compilers compilers(/*at_once=*/true);
  CHECK(compiled_kernel("a", "name", kDevice)->get() != nullptr);
  CHECK(compilers.compiler->compiled == 1);
}

TEST_CASE("Without a compiler there are no kernels") {
  CHECK(kernel_compiler(kType) == nullptr);
  CHECK(compiled_kernel("a", "name", kDevice) == nullptr);
}
