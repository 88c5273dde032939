// A session for tests that are written for the CPU: it runs on the test device.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "session/plan/memory_account.h"
#include "session/session.h"
#include "tests/device/test_device.h"

namespace rekindle::testing::device {

// Inputs go to the device and results come back, by copies that gradients pass.
class SessionOnDevice {
 public:
  explicit SessionOnDevice(std::shared_ptr<session::Session> session) : session_(std::move(session)) {}

  std::vector<at::Tensor> forward(std::span<const at::Tensor> inputs, bool record) const {
    return moved(session_->forward(moved(inputs, device()), record), at::kCPU);
  }
  void prepare(std::span<const at::Tensor> inputs, bool record) const {
    session_->prepare(moved(inputs, device()), record);
  }
  session::MemoryAccount memory(std::span<const at::Tensor> inputs, bool record) const {
    return session_->memory(moved(inputs, device()), record);
  }
  void set_functions(session::HostFunctions functions) const {
    session_->set_functions(std::move(functions));
  }
  void set_replay(session::Replay replay) const { session_->set_replay(std::move(replay)); }
  void set_first_touch(std::shared_ptr<rekindle::device::FirstTouch> memory) const {
    session_->set_first_touch(std::move(memory));
  }
  bool may_replay() const { return session_->may_replay(); }
  std::string describe_plan() const { return session_->describe_plan(); }
  session::SessionStats stats() const { return session_->stats(); }
  const autodiff::JointGraph& joint() const { return session_->joint(); }

 private:
  static std::vector<at::Tensor> moved(std::span<const at::Tensor> tensors, at::Device to) {
    std::vector<at::Tensor> moved;
    for (const at::Tensor& tensor : tensors) moved.push_back(tensor.to(to));
    return moved;
  }

  std::shared_ptr<session::Session> session_;
};

}  // namespace rekindle::testing::device
