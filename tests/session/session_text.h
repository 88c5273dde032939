// Sessions from text: what the tests of this room share. What cannot be made fails the test with its error.
// They are compiled a second time for the test device (tests/device), where sessions get their inputs there.
// What is about memory that the caller shares with a session has the tag [host], and runs on the CPU alone.
#pragma once

#include <catch2/catch.hpp>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "session/session.h"
#include "src/autodiff/gradient.h"
#include "tests/support/graph_text.h"
#if REKINDLE_ON_TEST_DEVICE
#include "tests/device/session_on_device.h"
#endif

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

#if REKINDLE_ON_TEST_DEVICE
using TestedSession = testing::device::SessionOnDevice;
#else
using TestedSession = Session;
#endif

inline std::shared_ptr<TestedSession> session_of(autodiff::JointGraph joint, SessionOptions options = {}) {
  auto session = Session::create(std::move(joint), std::move(options));
  if (!session.ok()) FAIL(session.error().message);
#if REKINDLE_ON_TEST_DEVICE
  return std::make_shared<TestedSession>(*session);
#else
  return *session;
#endif
}

inline std::shared_ptr<TestedSession> session_of(std::string_view text,
                                                 const std::vector<bool>& needs_gradient,
                                                 SessionOptions options = {}) {
  return session_of(joint_of(text, needs_gradient), std::move(options));
}

}  // namespace rekindle::session
