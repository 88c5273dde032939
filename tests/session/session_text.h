// Sessions from text: what the tests of this room share. What cannot be made fails the test with its error.
// The same tests run on the CPU in session_test, and on the test device in device_test (tests/device), but
// for those with the tag [host]: of no session, or of memory that the caller shares with a session.
#pragma once

#include <ATen/core/Tensor.h>

#include <catch2/catch.hpp>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "session/plan/memory_account.h"
#include "session/session.h"
#include "src/autodiff/gradient.h"
#include "tests/support/graph_text.h"

namespace rekindle::session {

// One op whose backward reads its result.
inline constexpr const char* kTanh = R"(
graph g(%x: float64[5]) {
  opset 20, rekindle 1
  %y: float64[5] = Tanh(%x)
  return %y
}
)";

inline autodiff::JointGraph joint_of(std::string_view text, const std::vector<bool>& needs_gradient) {
  auto joint = autodiff::differentiate(*testing::graph_from(text), needs_gradient);
  if (!joint.ok()) FAIL(joint.error().message);
  return std::move(joint).value();
}

// Where sessions of tests run; device_test sets another one.
inline at::Device tested_device = at::kCPU;

// A Session whose inputs go to tested_device and whose results come back, by copies that gradients pass; on
// the CPU nothing is copied.
class TestedSession {
 public:
  explicit TestedSession(std::shared_ptr<Session> session) : session_(std::move(session)) {}

  std::vector<at::Tensor> forward(std::span<const at::Tensor> inputs, bool record) const {
    return moved(session_->forward(moved(inputs, tested_device), record), at::kCPU);
  }
  void prepare(std::span<const at::Tensor> inputs, bool record) const {
    session_->prepare(moved(inputs, tested_device), record);
  }
  MemoryAccount memory(std::span<const at::Tensor> inputs, bool record) const {
    return session_->memory(moved(inputs, tested_device), record);
  }
  void set_functions(HostFunctions functions) const { session_->set_functions(std::move(functions)); }
  void set_constants(const std::vector<at::Tensor>& constants) const { session_->set_constants(constants); }
  void set_replay(Replay replay) const { session_->set_replay(std::move(replay)); }
  void set_first_touch(std::shared_ptr<device::FirstTouch> memory) const {
    session_->set_first_touch(std::move(memory));
  }
  bool may_replay() const { return session_->may_replay(); }
  std::string describe_plan() const { return session_->describe_plan(); }
  SessionStats stats() const { return session_->stats(); }
  std::optional<PaddingStats> padding() const { return session_->padding(); }
  const autodiff::JointGraph& joint() const { return session_->joint(); }

 private:
  static std::vector<at::Tensor> moved(std::span<const at::Tensor> tensors, at::Device to) {
    std::vector<at::Tensor> moved;
    for (const at::Tensor& tensor : tensors) moved.push_back(tensor.to(to));
    return moved;
  }

  std::shared_ptr<Session> session_;
};

inline std::shared_ptr<TestedSession> session_of(autodiff::JointGraph joint, SessionOptions options = {}) {
  auto session = Session::create(std::move(joint), std::move(options));
  if (!session.ok()) FAIL(session.error().message);
  return std::make_shared<TestedSession>(*session);
}

inline std::shared_ptr<TestedSession> session_of(std::string_view text,
                                                 const std::vector<bool>& needs_gradient,
                                                 SessionOptions options = {}) {
  return session_of(joint_of(text, needs_gradient), std::move(options));
}

}  // namespace rekindle::session
