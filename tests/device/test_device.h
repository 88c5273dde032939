// A device for tests: what a GPU forbids, delays or leaves open, on a machine without one.
//
// It is PyTorch's PrivateUse1, with two indices. Its memory faults when the host touches it outside of a
// kernel. Kernels run at once, on the CPU, but every access is held against vector clocks: two accesses of
// which one writes, on different streams and not ordered by an event or a synchronization, are an error that
// names both. Memory holds NaN before its first write, and after it is freed. Random numbers come from a
// generator of the device's own.
//
// An example: stream 1 writes x, and stream 2 reads it. Without an event between them, the second kernel
// throws
//
//     aten::mul on stream 2 reads what aten::add wrote on stream 1, and nothing orders the two
//
// For an executable or a Python process of its own (tests/conformance/device_of_tests.py): PrivateUse1
// becomes its accelerator.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace rekindle::testing::device {

inline constexpr at::DeviceType kType = at::DeviceType::PrivateUse1;
inline constexpr int kDevices = 2;
inline constexpr int kStreams = 4;  // of each device; the first is its default

inline at::Device device(int index = 0) { return {kType, static_cast<at::DeviceIndex>(index)}; }

// Counts what happened since the last reset(), over all devices. Each test case begins with a reset().
struct Counts {
  std::size_t allocations = 0;
  std::size_t kernels = 0;
  std::array<std::size_t, kDevices * kStreams> kernels_on{};  // by stream of device 0, then of device 1
  std::size_t synchronizations = 0;  // the host waited: an `.item()`, a copy to the host, a synchronize
};
Counts counts();
// Sets the counts to zero, and orders all that came before with all that follows.
void reset();

// Bytes that are allocated now, on all devices.
std::size_t live_bytes();
// Lets the n-th allocation from now on throw c10::OutOfMemoryError, and no other. 1: the next.
void fail_allocation(std::size_t n);

// Makes a stream the current one of its device and this thread, until the end of the scope.
class StreamScope {
 public:
  StreamScope(int index, int stream);
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;
  ~StreamScope();

 private:
  c10::Stream before_;
};

// Lets what is enqueued on one stream of a device wait for what is on another now, as by an event.
void order(int index, int before, int after);

}  // namespace rekindle::testing::device
