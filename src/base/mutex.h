// Mutex: a std::mutex that no forked child finds locked.
//
// A fork waits until no thread holds a Mutex, or prints a line, and those that come meanwhile wait for the
// fork. So what a Mutex guards is whole in the child, which may go on using it. Under a Mutex run neither
// Python nor anything else that may need the GIL: whoever forks holds it.
#pragma once

#include <mutex>

namespace rekindle {

// While alive, a fork in another thread waits; for what has a lock of its own. Nests.
class ForkHold {
 public:
  ForkHold();
  ~ForkHold();
  ForkHold(const ForkHold&) = delete;
  ForkHold& operator=(const ForkHold&) = delete;

 private:
  friend class Mutex;
  static void begin();
  static void end();
};

class Mutex {
 public:
  void lock() {
    ForkHold::begin();
    mutex_.lock();
  }
  void unlock() {
    mutex_.unlock();
    ForkHold::end();
  }

 private:
  std::mutex mutex_;
};

}  // namespace rekindle
