#include "device/kernel_compiler.h"

#include <unistd.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "src/base/log.h"
#include "src/base/mutex.h"

namespace rekindle::device {
namespace {

struct Compilers {
  Mutex mutex;
  std::map<c10::DeviceType, std::pair<std::shared_ptr<KernelCompiler>, bool>> of;
  static Compilers& get() {
    static Compilers compilers;
    return compilers;
  }
};

std::pair<std::shared_ptr<KernelCompiler>, bool> compiler_of(c10::DeviceType type) {
  Compilers& compilers = Compilers::get();
  const std::lock_guard lock(compilers.mutex);
  const auto found = compilers.of.find(type);
  return found == compilers.of.end() ? std::pair(std::shared_ptr<KernelCompiler>(), false) : found->second;
}

}  // namespace

// What is to be compiled, and the threads that do it: they end when nothing is left, and each joins the one
// that ended before it. A forked child has none of them, and begins its own.
class CompileQueue {
 public:
  static CompileQueue& get() {
    static CompileQueue queue;
    return queue;
  }
  CompileQueue() = default;
  CompileQueue(const CompileQueue&) = delete;
  CompileQueue& operator=(const CompileQueue&) = delete;
  // Compilers of a GPU do not outlive the process's end: what has not begun is left.
  ~CompileQueue() {
    std::vector<std::thread> threads;
    {
      const std::lock_guard lock(mutex_);
      waiting_.clear();
      if (process_ != getpid()) abandon();
      threads.swap(threads_);
    }
    for (std::thread& thread : threads) thread.join();
    if (ended_.joinable()) ended_.join();
  }

  std::shared_ptr<CompiledKernel> add(const std::string& source, const std::string& name,
                                      c10::Device device) {
    const auto [compiler, at_once] = compiler_of(device.type());
    if (compiler == nullptr) return nullptr;
    std::unique_lock lock(mutex_);
    if (process_ != getpid()) abandon();
    std::shared_ptr<CompiledKernel>& kernel = kernels_[{device.str(), source}];
    if (kernel != nullptr) return kernel;
    kernel = std::make_shared<CompiledKernel>();
    Job job{kernel, compiler, source, name, device};
    if (at_once) {
      const std::shared_ptr<CompiledKernel> made = kernel;
      lock.unlock();
      run(job);
      return made;
    }
    waiting_.push_back(std::move(job));
    if (running_ < most_threads()) {
      ++running_;
      threads_.emplace_back([this] { work(); });
    }
    return kernel;
  }

  void forget(c10::DeviceType type) {
    const std::lock_guard lock(mutex_);
    std::erase_if(kernels_, [&](const auto& each) { return c10::Device(each.first.first).type() == type; });
  }

 private:
  struct Job {
    std::shared_ptr<CompiledKernel> kernel;
    std::shared_ptr<KernelCompiler> compiler;
    std::string source, name;
    c10::Device device;
  };

  static unsigned most_threads() { return std::clamp(std::thread::hardware_concurrency() / 2, 1U, 8U); }

  // Lets go of the threads of the process that this one was forked from.
  void abandon() {
    for (std::thread& thread : threads_) thread.detach();
    threads_.clear();
    if (ended_.joinable()) ended_.detach();
    running_ = 0;
    process_ = getpid();
  }

  void work() {
    std::thread before;
    while (std::optional<Job> job = next(before)) run(*job);
    if (before.joinable()) before.join();  // here, for add() may hold the GIL
  }

  // Returns what the calling thread does next. nullopt: it ends, and joins `before`.
  std::optional<Job> next(std::thread& before) {
    const std::lock_guard lock(mutex_);
    if (!waiting_.empty()) {
      Job job = std::move(waiting_.front());
      waiting_.pop_front();
      return job;
    }
    --running_;
    const auto is_own = [id = std::this_thread::get_id()](const auto& thread) {
      return thread.get_id() == id;
    };
    const auto own = std::ranges::find_if(threads_, is_own);
    if (own != threads_.end()) {  // else the destructor joins it
      before = std::exchange(ended_, std::move(*own));
      threads_.erase(own);
    }
    return std::nullopt;
  }

  void run(const Job& job) {
    try {
      job.kernel->kernel_ = job.compiler->compile(job.source, job.name, job.device);
      job.kernel->ready_.store(job.kernel->kernel_.get(), std::memory_order_release);
    } catch (const std::exception& error) {
      if (!warned_.exchange(true)) {
        log_warning("a kernel of several ops is not compiled for " + job.device.str() +
                    ", whose ops are launched one by one: " + error.what());
      }
    }
    job.kernel->done_.store(true, std::memory_order_release);
  }

  Mutex mutex_;
  // By device and source.
  std::map<std::pair<std::string, std::string>, std::shared_ptr<CompiledKernel>> kernels_;
  std::deque<Job> waiting_;
  std::vector<std::thread> threads_;
  std::thread ended_;  // the last one that has, until the next one joins it
  unsigned running_ = 0;
  pid_t process_ = getpid();
  std::atomic<bool> warned_ = false;
};

void set_kernel_compiler(c10::DeviceType type, std::shared_ptr<KernelCompiler> compiler, bool at_once) {
  CompileQueue::get().forget(type);
  Compilers& compilers = Compilers::get();
  const std::lock_guard lock(compilers.mutex);
  compilers.of[type] = {std::move(compiler), at_once};
}

std::shared_ptr<KernelCompiler> kernel_compiler(c10::DeviceType type) { return compiler_of(type).first; }

std::shared_ptr<CompiledKernel> compiled_kernel(const std::string& source, const std::string& name,
                                                c10::Device device) {
  return CompileQueue::get().add(source, name, device);
}

}  // namespace rekindle::device
