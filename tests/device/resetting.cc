// Begins each test case with a device::reset(), and lets those of tests/session run on the device.
#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include <catch2/catch.hpp>

#include "tests/device/test_device.h"
#include "tests/session/session_text.h"

namespace {

struct Resetting : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;
  void testCaseStarting(const Catch::TestCaseInfo&) override {
    rekindle::testing::device::reset();
    rekindle::session::tested_device = rekindle::testing::device::device();
  }
};

CATCH_REGISTER_LISTENER(Resetting)

}  // namespace
