// Compiles kernels for a device while a process runs, beside its work.
//
//   const auto kernel = compiled_kernel(source, "fused", device);  // returns at once
//   if (RuntimeKernel* ready = kernel->get()) ready->launch(blocks, threads, words, device);
#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace rekindle::device {

class RuntimeKernel {
 public:
  virtual ~RuntimeKernel() = default;
  // Enqueues it on the device's current stream. words: its only parameter, by value. Throws c10::Error where
  // the device does not take it.
  virtual void launch(unsigned blocks, unsigned threads, const std::vector<std::int64_t>& words,
                      c10::Device device) = 0;
};

class KernelCompiler {
 public:
  virtual ~KernelCompiler() = default;
  // Called from any thread, from several at once. `source` is in the language of kernels (src/fusion), whose
  // text is the compiler's to add. Throws std::exception for what cannot be compiled.
  virtual std::unique_ptr<RuntimeKernel> compile(const std::string& source, const std::string& name,
                                                 c10::Device device) = 0;
};

// For the process; null: there is none, as at first. `at_once`: compiled_kernel() returns when it is
// compiled.
void set_kernel_compiler(c10::DeviceType type, std::shared_ptr<KernelCompiler> compiler,
                         bool at_once = false);
// Null where devices of this type have none.
std::shared_ptr<KernelCompiler> kernel_compiler(c10::DeviceType type);

// A kernel that is being compiled, or has been.
class CompiledKernel {
 public:
  // How far its user trusts it, for all who launch it.
  enum class Trust : std::uint8_t { kUntried, kTried, kRefused };

  // Null as long as it is not compiled, and if it cannot be.
  RuntimeKernel* get() const { return ready_.load(std::memory_order_acquire); }
  // Returns whether the compiler is done with it, so that get() returns the same from then on.
  bool is_done() const { return done_.load(std::memory_order_acquire); }
  Trust trust() const { return trust_.load(std::memory_order_acquire); }
  void set_trust(Trust trust) { trust_.store(trust, std::memory_order_release); }

 private:
  friend class CompileQueue;
  std::unique_ptr<RuntimeKernel> kernel_;
  std::atomic<RuntimeKernel*> ready_ = nullptr;
  std::atomic<bool> done_ = false;
  std::atomic<Trust> trust_ = Trust::kUntried;
};

// One for each source and device, as long as the process runs. What cannot be compiled is one warning of the
// process. Null where the device has no compiler.
std::shared_ptr<CompiledKernel> compiled_kernel(const std::string& source, const std::string& name,
                                                c10::Device device);

}  // namespace rekindle::device
