// The order of streams that use one piece of memory in turn.
#pragma once

#include <ATen/core/TensorBody.h>
#include <c10/core/Stream.h>

#include <optional>

namespace rekindle::device {

// An example: a frame runs a forward on stream 1, is given back, and is taken for a forward on stream 2.
// enter() then lets stream 2 wait for what stream 1 has been given up to now, so that the second forward does
// not write to the arena while the first one's kernels still read it. The host never waits.
class StreamOrder {
 public:
  // To be called before each use of `memory`, with the device's current stream as the one that will use it.
  // The allocator does not give the memory to others before that stream has done so. Does nothing on the CPU.
  void enter(const at::Tensor& memory);

  // Tells whether the current stream used the memory last, or nobody has yet. Always true on the CPU.
  bool is_of_current_stream(at::Device device) const;

 private:
  std::optional<c10::Stream> last_;
};

}  // namespace rekindle::device
