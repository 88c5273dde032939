#include "tests/cuda_emulation/machine.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "tests/cuda_emulation/memory.h"

rekindle::emulation::Index threadIdx, blockIdx, blockDim, gridDim;

namespace rekindle::emulation {
namespace {

constexpr std::size_t kStackBytes = 64 << 10;

enum class State { kReady, kAtBarrier, kAtWarpBarrier, kAtShuffle, kEnded };

const char* name_of(State state) {
  constexpr const char* names[] = {"runs", "waits at a barrier", "waits at a barrier of its warp",
                                   "waits at a shuffle", "has ended"};
  return names[static_cast<std::size_t>(state)];
}

// One thread of a block, as a fiber.
struct Thread {
  ucontext_t context{};
  State state = State::kReady;
  Index index;
  unsigned mask = 0;                  // of what it waits for
  const char* file = "";              // of the barrier that it waits at
  unsigned line = 0;                  // there
  unsigned lanes = 0;                 // of a shuffle
  unsigned warp_barriers = 0;         // that it has passed
  std::array<std::byte, 16> value{};  // of a shuffle
};

class Machine {
 public:
  static Machine& instance() {
    static Machine machine;
    return machine;
  }

  void launch(const std::function<void()>& kernel, unsigned blocks, unsigned threads) {
    if (threads == 0 || threads > kMostThreads || blocks == 0) throw Fault("no grid of such a size");
    ++launches_;
    gridDim = {blocks, 1, 1};
    blockDim = {threads, 1, 1};
    kernel_ = &kernel;
    for (blockIdx = {}; blockIdx.x < blocks; ++blockIdx.x) run_block(threads);
  }

  [[noreturn]] void fail(const char* what) {
    in_kernel_ = false;
    fault_ = where() + what;
    setcontext(&scheduler_);
    __builtin_unreachable();
  }

  void wait(State state, unsigned mask, const char* file = "", unsigned line = 0) {
    in_kernel_ = false;
    running_->file = file;
    running_->line = line;
    running_->state = state;
    running_->mask = mask;
    Thread* const mine = running_;
    swapcontext(&mine->context, &scheduler_);
    in_kernel_ = true;
  }

  void shuffle_down(unsigned mask, void* value, std::size_t bytes, unsigned lanes) {
    in_kernel_ = false;
    Thread& mine = *running_;
    if (bytes > mine.value.size()) fail("a shuffle of more than 16 bytes");
    std::memcpy(mine.value.data(), value, bytes);
    mine.lanes = lanes;
    wait(State::kAtShuffle, mask);
    in_kernel_ = false;
    std::memcpy(value, mine.value.data(), bytes);
    in_kernel_ = true;
  }

  void access(std::uintptr_t address, std::size_t bytes, bool writes) {
    if (!in_kernel_) return;
    in_kernel_ = false;  // templates that kernels and this file share may be those with hooks
    if (is_on_stack(address)) {
      if (thread_at(address) != running_->index.x) fail("accesses the stack of another thread");
    } else {
      check(address, bytes, writes);
    }
    in_kernel_ = true;
  }

  void set_order(Order order) { order_ = order; }

 private:
  void check(std::uintptr_t address, std::size_t bytes, bool writes) {
    const Moment now{static_cast<std::uint32_t>(launches_), blockIdx.x, barriers_,
                     static_cast<std::uint16_t>(running_->index.x),
                     static_cast<std::uint16_t>(running_->warp_barriers)};
    if (auto fault = memory().access(address, bytes, writes, now)) fail(fault->c_str());
  }

  Machine() : threads_(kMostThreads) {
    void* const stacks = mmap(nullptr, kStackBytes * kMostThreads, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) throw std::bad_alloc();
    stacks_ = reinterpret_cast<std::uintptr_t>(stacks);
  }

  static void begin() {
    Machine& machine = instance();
    machine.in_kernel_ = true;
    (*machine.kernel_)();
    machine.in_kernel_ = false;
    machine.running_->state = State::kEnded;
    setcontext(&machine.scheduler_);
  }

  std::string where() const {
    return "launch " + std::to_string(launches_) + ", thread " + std::to_string(running_->index.x) +
           " of block " + std::to_string(blockIdx.x) + ": ";
  }

  bool is_on_stack(std::uintptr_t address) const {
    return address >= stacks_ && address < stacks_ + kStackBytes * kMostThreads;
  }
  unsigned thread_at(std::uintptr_t address) const {
    return static_cast<unsigned>((address - stacks_) / kStackBytes);
  }

  void run_block(unsigned threads) {
    barriers_ = 0;
    memory().begin_block();
    for (unsigned i = 0; i < threads; ++i) {
      Thread& thread = threads_[i];
      thread = {};
      thread.index.x = i;
      getcontext(&thread.context);
      thread.context.uc_stack.ss_sp = reinterpret_cast<void*>(stacks_ + kStackBytes * i);
      thread.context.uc_stack.ss_size = kStackBytes;
      makecontext(&thread.context, &Machine::begin, 0);
    }
    const std::vector<unsigned> order = order_of(threads);
    do {
      for (const unsigned i : order) run(threads_[i]);
    } while (release(threads));
  }

  std::vector<unsigned> order_of(unsigned threads) {
    std::vector<unsigned> order(threads);
    std::iota(order.begin(), order.end(), 0);
    if (order_ == Order::kDescending) std::reverse(order.begin(), order.end());
    if (order_ == Order::kShuffled) std::shuffle(order.begin(), order.end(), random_);
    return order;
  }

  // Lets a thread run until it waits or ends. Throws Fault.
  void run(Thread& thread) {
    if (thread.state != State::kReady) return;
    running_ = &thread;
    threadIdx = thread.index;
    fault_.clear();
    // Not swapcontext: a thread that fails comes here by setcontext, past its end.
    volatile bool began = false;
    getcontext(&scheduler_);
    if (!began) {
      began = true;
      setcontext(&thread.context);
    }
    running_ = nullptr;
    if (!fault_.empty()) throw Fault(fault_);
  }

  // Lets go on who has waited for long enough; false when all have ended. Throws Fault where nobody can go
  // on.
  bool release(unsigned threads) {
    const auto is = [&](State state) {
      return std::count_if(threads_.begin(), threads_.begin() + threads,
                           [&](const Thread& thread) { return thread.state == state; });
    };
    if (is(State::kEnded) == threads) return false;
    if (is(State::kAtBarrier) == threads && at_one_barrier(threads)) {
      ++barriers_;
      for (unsigned i = 0; i < threads; ++i) threads_[i].state = State::kReady;
      return true;
    }
    bool goes_on = false;
    for (unsigned first = 0; first < threads; first += kWarp)
      goes_on |= release_warp(first, std::min(kWarp, threads - first));
    if (goes_on) return true;
    throw Fault(divergence(threads));
  }

  bool at_one_barrier(unsigned threads) const {
    return std::all_of(threads_.begin(), threads_.begin() + threads,
                       [&](const Thread& thread) { return !differ(threads_[0], thread); });
  }

  // Whether two threads wait for something else.
  static bool differ(const Thread& one, const Thread& other) {
    return one.state != other.state || one.mask != other.mask || one.line != other.line ||
           std::strcmp(one.file, other.file) != 0;
  }

  static std::string describe(const Thread& thread) {
    std::string what = "thread " + std::to_string(thread.index.x) + " " + name_of(thread.state);
    if (thread.state == State::kAtBarrier)
      what += std::string(" (") + thread.file + ":" + std::to_string(thread.line) + ")";
    return what;
  }

  bool release_warp(unsigned first, unsigned size) {
    bool goes_on = false;
    for (unsigned lane = 0; lane < size; ++lane) {
      const Thread& one = threads_[first + lane];
      if (one.state != State::kAtShuffle && one.state != State::kAtWarpBarrier) continue;
      const auto waits_with_it = [&](unsigned other) {
        const Thread& thread = threads_[first + other];
        return other < size && thread.state == one.state && thread.mask == one.mask;
      };
      bool all = (one.mask >> lane & 1) != 0;
      for (unsigned other = 0; other < kWarp; ++other)
        all = all && ((one.mask >> other & 1) == 0 || waits_with_it(other));
      if (!all) continue;
      pass(first, one.mask, one.state);
      goes_on = true;
    }
    return goes_on;
  }

  // Lets the lanes of a mask go on, with what a shuffle gives them.
  void pass(unsigned first, unsigned mask, State state) {
    std::array<std::array<std::byte, 16>, kWarp> given;
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      if ((mask >> lane & 1) == 0) continue;
      const unsigned source = lane + threads_[first + lane].lanes;
      const bool is_there = source < kWarp && (mask >> source & 1) != 0;
      given[lane] = threads_[first + (is_there ? source : lane)].value;
    }
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      if ((mask >> lane & 1) == 0) continue;
      Thread& thread = threads_[first + lane];
      thread.state = State::kReady;
      if (state == State::kAtShuffle) thread.value = given[lane];
      if (state == State::kAtWarpBarrier) ++thread.warp_barriers;
    }
  }

  std::string divergence(unsigned threads) const {
    const auto waiting = std::find_if(threads_.begin(), threads_.begin() + threads,
                                      [](const Thread& thread) { return thread.state != State::kEnded; });
    const auto other = std::find_if(threads_.begin(), threads_.begin() + threads,
                                    [&](const Thread& thread) { return differ(*waiting, thread); });
    std::string what = "launch " + std::to_string(launches_) + ", block " + std::to_string(blockIdx.x) +
                       ": divergent: " + describe(*waiting);
    if (other != threads_.begin() + threads) what += ", " + describe(*other);
    return what;
  }

  std::vector<Thread> threads_;
  std::uintptr_t stacks_ = 0;
  ucontext_t scheduler_{};
  Thread* running_ = nullptr;
  bool in_kernel_ = false;
  const std::function<void()>* kernel_ = nullptr;
  std::uint32_t barriers_ = 0;  // that the block has passed
  std::size_t launches_ = 0;
  std::string fault_;
  Order order_ = Order::kAscending;
  std::mt19937 random_{1};
};

}  // namespace

void set_order(Order order) { Machine::instance().set_order(order); }

void launch(const std::function<void()>& kernel, unsigned blocks, unsigned threads) {
  Machine::instance().launch(kernel, blocks, threads);
}

void barrier(const char* file, unsigned line) { Machine::instance().wait(State::kAtBarrier, 0, file, line); }
void warp_barrier(unsigned mask) { Machine::instance().wait(State::kAtWarpBarrier, mask); }

void shuffle_down(unsigned mask, void* value, std::size_t bytes, unsigned lanes) {
  Machine::instance().shuffle_down(mask, value, bytes, lanes);
}

void fail(const char* what) { Machine::instance().fail(what); }

void access(const void* address, std::size_t bytes, bool writes) {
  Machine::instance().access(reinterpret_cast<std::uintptr_t>(address), bytes, writes);
}

}  // namespace rekindle::emulation
