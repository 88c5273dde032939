// Records what the host tells a device to do, so that the device repeats it at one word: CUDA graphs.
//
// An example: forward and backward of a ResNet-50 are 735 launches, which take the host longer than the
// device.
//
//   const std::unique_ptr<LaunchRecorder> recorder = launch_recorders(device.type())->make(device);
//   const std::unique_ptr<LaunchRecording> step = recorder->record(launch_all);  // computes nothing
//   step->replay();  // computes; again and again, from the same memory into the same memory
//
// Numbers that the host hands to a kernel are the recorded ones in every replay, but for random ones, which
// the device's generator draws anew.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <functional>
#include <memory>

namespace rekindle::device {

// One sequence of launches. It keeps the memory that was allocated while it was recorded.
class LaunchRecording {
 public:
  virtual ~LaunchRecording() = default;
  // Enqueues the launches on the device's current stream, and returns at once.
  virtual void replay() = 0;
};

// Sequences that are replayed in the order in which they were recorded, on memory of their own: what one of
// them has freed, a later one may use.
class LaunchRecorder {
 public:
  virtual ~LaunchRecorder() = default;
  // Records what `work` does on this thread, which runs it with another stream. The device runs none of what
  // `work` launches, even if this throws: what `work` throws, or what the device says of a sequence that it
  // cannot repeat, as one that waits for the device.
  virtual std::unique_ptr<LaunchRecording> record(const std::function<void()>& work) = 0;
};

// How recorders of a type of device are made.
struct LaunchRecorders {
  std::function<std::unique_ptr<LaunchRecorder>(c10::Device)> make;
  // Launches should run so often before they are recorded: libraries load kernels then, and choose among
  // them.
  std::size_t runs_before = 2;
};
// For the process; no `make`: they have none, as at first.
void set_launch_recorders(c10::DeviceType type, LaunchRecorders recorders);
// Null where devices of this type have none.
std::shared_ptr<const LaunchRecorders> launch_recorders(c10::DeviceType type);

}  // namespace rekindle::device
