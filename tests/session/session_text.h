// Sessions from text: what the tests of this room share. What cannot be made fails the test with its error.
#pragma once

#include <catch2/catch.hpp>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "session/session.h"
#include "src/autodiff/gradient.h"
#include "tests/support/graph_text.h"

namespace rekindle::session {

inline autodiff::JointGraph joint_of(std::string_view text, const std::vector<bool>& needs_gradient) {
  auto joint = autodiff::differentiate(*testing::graph_from(text), needs_gradient);
  if (!joint.ok()) FAIL(joint.error().message);
  return std::move(joint).value();
}

inline std::shared_ptr<Session> session_of(autodiff::JointGraph joint, SessionOptions options = {}) {
  auto session = Session::create(std::move(joint), std::move(options));
  if (!session.ok()) FAIL(session.error().message);
  return *session;
}

inline std::shared_ptr<Session> session_of(std::string_view text, const std::vector<bool>& needs_gradient,
                                           SessionOptions options = {}) {
  return session_of(joint_of(text, needs_gradient), std::move(options));
}

}  // namespace rekindle::session
