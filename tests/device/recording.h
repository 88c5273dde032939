// The test device records its launches and repeats them, as a GPU does with a CUDA graph. Internal to
// tests/device.
//
// While a thread records, its kernels run as always, for the sizes and places of their results; when it ends,
// all memory and random states are what they were before. A replay runs the kernels again: from the addresses
// that they had into the addresses that they had. Memory that is allocated meanwhile belongs to a pool, of
// which only later recordings take. What a GPU cannot record is an error: the host waiting for the device, an
// event.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace rekindle::testing::device {

struct Recording {
  std::vector<std::function<void()>> launches;
  std::int64_t pool = 0;
  int index = 0;                          // of the device
  std::vector<std::vector<char>> memory;  // by device: what was there before
  std::vector<at::Tensor> random_states;  // by device
  int stream = 0;                         // the thread's, before
};

// Returns what this thread records; null if it does not.
Recording* recording();
// Throws where the thread records, for what no GPU records.
void refuse_to_record(const char* what);
// Adds a launch, if the thread records.
void record_launch(std::function<void()> launch);

// A tensor over the device memory of another, which it does not own.
at::Tensor alias_of(const at::Tensor& tensor);

// Begins, on the current device; ends, and says which it was; replays it; forgets it.
void begin_recording(std::int64_t pool);
std::int64_t end_recording();
void replay(std::int64_t id);
void forget_recording(std::int64_t id);

}  // namespace rekindle::testing::device
