// A machine that runs CUDA kernels on the host and finds what is wrong with them.
//
//   launch 2, thread 0 of block 0: race: writes 8 bytes at +0 of shared memory, which thread 3 has read, and
//   no barrier is between the two
//
// A `.cu` file is compiled by the host's compiler against kernel_language.h. A block's threads are fibers:
// one runs until it comes to a barrier or a shuffle, in an order that the test chooses. The compiler's hooks
// of the thread sanitizer tell every access to memory (hooks.cc), so that an access outside of what is
// allocated, one to what was not written yet, and two that no barrier orders are found, and found each time.
// It tells nothing of weak memory order, bank conflicts, other rounding and speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

namespace rekindle::emulation {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};

constexpr unsigned kWarp = 32;
constexpr unsigned kMostThreads = 1024;  // of a block

// A kernel did what no kernel may; thrown by `launch`, on the host.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// In which order the threads of a block run between barriers. A kernel's results depend on it only by a race.
enum class Order { kAscending, kDescending, kShuffled };
void set_order(Order order);

// Runs `kernel` once a thread of a grid with one dimension. Throws Fault.
void launch(const std::function<void()>& kernel, unsigned blocks, unsigned threads);

// Only a kernel may call the functions below; they act on the thread that runs.

// Waits for all threads of the block, which have to come to the same barrier.
void barrier(const char* file, unsigned line);
// Waits for the lanes of the warp in `mask`; orders what they read and write.
void warp_barrier(unsigned mask);
// Gives `bytes` (at most 16) of each lane in `mask` to the lane `lanes` below; those without one keep theirs.
void shuffle_down(unsigned mask, void* value, std::size_t bytes, unsigned lanes);
// Ends the launch.
[[noreturn]] void fail(const char* what);

// While it lives, CPU tensors are the device's memory: an access outside of one is a fault, as is one that
// reads what nobody has written.
class DeviceMemory {
 public:
  DeviceMemory();
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
};

// An access of a kernel's code; from the hooks.
void access(const void* address, std::size_t bytes, bool writes);

}  // namespace rekindle::emulation

// A kernel reads here, as on a device, which thread of which block runs it.
extern rekindle::emulation::Index threadIdx, blockIdx, blockDim, gridDim;
