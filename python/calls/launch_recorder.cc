#include "python/calls/launch_recorder.h"

#include <exception>
#include <memory>
#include <utility>

#include "device/launch_recorder.h"
#include "python/calls/owned.h"

namespace rekindle::python {

namespace py = pybind11;

namespace {

class Recording : public device::LaunchRecording {
 public:
  Recording(py::object recording, py::object replay)
      : recording_(std::move(recording)), replay_(std::move(replay)) {}
  void replay() override {
    const py::gil_scoped_acquire gil;
    (*replay_)();
  }

 private:
  Owned<py::object> recording_, replay_;
};

class Recorder : public device::LaunchRecorder {
 public:
  explicit Recorder(py::object recorder) : recorder_(std::move(recorder)) {}

  std::unique_ptr<device::LaunchRecording> record(const std::function<void()>& work) override {
    const py::gil_scoped_acquire gil;
    std::exception_ptr failed;  // as it was thrown, whatever Python makes of it
    const py::cpp_function in_python([&] {
      const py::gil_scoped_release release;
      try {
        work();
      } catch (...) {
        failed = std::current_exception();
        throw;
      }
    });
    try {
      py::object recording = recorder_->attr("record")(in_python);
      py::object replay = recording.attr("replay");
      return std::make_unique<Recording>(std::move(recording), std::move(replay));
    } catch (...) {
      if (failed != nullptr) std::rethrow_exception(failed);
      throw;
    }
  }

 private:
  Owned<py::object> recorder_;
};

}  // namespace

void set_launch_recorders(const std::string& type, py::object make, std::size_t runs_before) {
  const c10::DeviceType device_type = c10::Device(type).type();
  if (make.is_none()) return device::set_launch_recorders(device_type, {});
  auto kept = std::make_shared<Owned<py::object>>(std::move(make));
  const auto made = [kept](c10::Device device) {
    const py::gil_scoped_acquire gil;
    return std::unique_ptr<device::LaunchRecorder>(std::make_unique<Recorder>((**kept)(device.str())));
  };
  device::set_launch_recorders(device_type, {made, runs_before});
}

}  // namespace rekindle::python
