// The test device itself: memory, streams, generators and the kernel that is running. Internal to
// tests/device.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Allocator.h>

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <vector>

#include "tests/device/clocks.h"

namespace rekindle::testing::device {

inline constexpr std::size_t kMemory = std::size_t{1} << 30;  // of each device
inline constexpr std::size_t kBlockBytes = 512;

// The current device of this thread, and the current stream of each.
int current_device();
void set_current_device(int index);
int current_stream(int index);
void set_current_stream(int index, int stream);

struct Event {
  Clock clock;
};

struct Recording;

class Machine {
 public:
  static Machine& get();

  // Memory of the current device, for its current stream. Throws c10::OutOfMemoryError.
  void* allocate(std::size_t bytes);
  void release(void* pointer);
  // Keeps a block from being used again before what is on the stream when it is freed.
  void record_stream(void* pointer, int index, int stream);
  // -1: host memory.
  int device_of(const void* pointer) const;

  void record(Event& event, int index, int stream);
  void wait(const Event& event, int index, int stream);
  // Lets the current streams of two devices wait for each other, as a copy between them does.
  void meet(int a, int b);
  // Let the host wait for a stream, or for all of a device: -1; or for what a clock knows.
  void synchronize(int index, int stream);
  void synchronize(const Clock& clock);
  void reset();

  // All memory and random states, and putting them back; see recording.h.
  void save(Recording& recording);
  void restore(const Recording& recording);

  at::Generator& generator(int index);

  Counts counted;
  std::size_t live = 0;
  std::size_t failing = 0;  // the allocation that fails, counted down

 private:
  friend class Kernel;
  struct Block {
    std::size_t bytes = 0;
    std::size_t stream = 0;
    std::int64_t pool = 0;  // of recordings; 0: of all others
    bool used = false;
    std::set<std::size_t> streams;  // other streams that use it
    Clock after;                    // what has to be done before it is used again
  };

  Machine();
  void protect(bool allowed);
  void* reuse(std::size_t bytes, std::size_t stream, std::int64_t pool);
  // Takes back the free blocks at the end of a device's memory, for a stream: each kernel protects what is
  // taken.
  void trim(std::size_t index, std::size_t stream);

  std::recursive_mutex mutex_;
  std::vector<char*> memory_;       // by device
  std::vector<std::size_t> taken_;  // by device: of its memory, from the beginning
  std::map<char*, Block> blocks_;
  std::vector<Clock> streams_ = std::vector<Clock>(kAllStreams);
  Clock host_;
  Accesses accesses_;
  std::vector<at::Generator> generators_;
  int running_ = 0;  // kernels, one in another
};

// The time in which a kernel runs: device memory may be touched. Holds the machine's lock.
class Kernel {
 public:
  // On the device's current stream.
  Kernel(int index, std::string name);
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  ~Kernel();

  // Throw c10::Error for a race. `tensor`: on the device, or it counts as nothing.
  void reads(const at::Tensor& tensor);
  void writes(const at::Tensor& tensor);

 private:
  Machine& machine_;
  std::unique_lock<std::recursive_mutex> lock_;
  Launch launch_;
  bool is_recorded_ = false;  // and counts when it is replayed
};

}  // namespace rekindle::testing::device
