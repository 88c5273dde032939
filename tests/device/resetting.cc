// Begins each test case with a device::reset().
#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include <catch2/catch.hpp>

#include "tests/device/test_device.h"

namespace {

struct Resetting : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;
  void testCaseStarting(const Catch::TestCaseInfo&) override { rekindle::testing::device::reset(); }
};

CATCH_REGISTER_LISTENER(Resetting)

}  // namespace
