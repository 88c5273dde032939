#include "src/base/mutex.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace rekindle {
namespace {

using Clock = std::chrono::steady_clock;

// Far longer than anybody holds a Mutex: a thread that was stopped must not stop a fork.
constexpr std::chrono::seconds kPatience{5};
constexpr std::chrono::microseconds kPause{50};

// Lock-free, so that the handlers may touch them in a child whose other threads are gone.
std::atomic<int> holding{0};  // threads
std::atomic<bool> forking{false};
thread_local int depth = 0;  // of this thread's holds

void before_fork() {
  forking = true;
  const auto deadline = Clock::now() + kPatience;
  const int own = depth > 0 ? 1 : 0;
  while (holding > own && Clock::now() < deadline) std::this_thread::sleep_for(kPause);
}

void in_parent() { forking = false; }

void in_child() {
  holding = depth > 0 ? 1 : 0;
  forking = false;
}

// A function's static variable: nothing is held before somebody has come here.
void watch_forks() {
  [[maybe_unused]] static const int registered = pthread_atfork(before_fork, in_parent, in_child);
}

}  // namespace

void ForkHold::begin() {
  if (depth++ > 0) return;
  watch_forks();
  for (++holding; forking; ++holding) {
    --holding;
    while (forking) std::this_thread::sleep_for(kPause);
  }
}

void ForkHold::end() {
  if (--depth == 0) --holding;
}

ForkHold::ForkHold() { begin(); }
ForkHold::~ForkHold() { end(); }

}  // namespace rekindle
