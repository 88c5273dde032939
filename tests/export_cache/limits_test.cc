// What the system refuses: open files, file sizes. Each in a process of its
// own, for limits cannot be raised again.
#include <signal.h>
#include <sys/resource.h>

#include <catch2/catch.hpp>

#include "src/base/log.h"
#include "tests/export_cache/support.h"
#include "tests/support/child.h"
#include "tests/support/temp_dir.h"

using namespace rekindle;
using rekindle::testing::Child;
using rekindle::testing::child_argument;
using rekindle::testing::child_dir;
using rekindle::testing::noisy_entry;
using rekindle::testing::open_cache;
using rekindle::testing::TempDir;

namespace {

void set_limit(decltype(RLIMIT_NOFILE) which, rlim_t value) {
  rlimit limit{};
  REQUIRE(getrlimit(which, &limit) == 0);
  limit.rlim_cur = value;
  REQUIRE(setrlimit(which, &limit) == 0);
}

rlim_t limit_of(decltype(RLIMIT_NOFILE) which) {
  rlimit limit{};
  REQUIRE(getrlimit(which, &limit) == 0);
  return limit.rlim_cur;
}

}  // namespace

TEST_CASE("child runs out of open files", "[.child]") {
  set_log_level(LogLevel::kOff);
  auto cache = open_cache(child_dir());
  REQUIRE(cache->store(digest_of("prekey"), "", noisy_entry("one", 10'000)).ok());
  const rlim_t normal = limit_of(RLIMIT_NOFILE);
  // At every number of descriptors that a call may stop at: refused or done, never a wrong answer.
  for (rlim_t files = 3; files < 24; ++files) {
    set_limit(RLIMIT_NOFILE, files);
    INFO(files);
    const auto candidates = cache->lookup(digest_of("prekey"));
    const auto stored = cache->store(digest_of("new " + std::to_string(files)), "",
                                     noisy_entry(std::to_string(files), 10'000));
    set_limit(RLIMIT_NOFILE, normal);
    if (candidates.ok()) REQUIRE(candidates->size() == 1);
    if (!candidates.ok()) REQUIRE(candidates.error().code == ErrorCode::kIo);
    if (!stored.ok()) REQUIRE(stored.error().code == ErrorCode::kIo);
    REQUIRE(cache->lookup(digest_of("new " + std::to_string(files)))->size() == (stored.ok() ? 1 : 0));
  }
}

TEST_CASE("child meets a limit on the size of files", "[.child]") {
  set_log_level(LogLevel::kOff);
  signal(SIGXFSZ, SIG_IGN);
  auto cache = open_cache(child_dir());
  set_limit(RLIMIT_FSIZE, 50'000);
  const auto stored = cache->store(digest_of("large"), "", noisy_entry("large", 100'000));
  REQUIRE(stored.error().code == ErrorCode::kIo);
  REQUIRE(stored.error().message.find("REKINDLE_CACHE_SIZE") != std::string::npos);
  REQUIRE(cache->lookup(digest_of("large"))->empty());
  REQUIRE(cache->lookup(digest_of("prekey"))->size() == 1);
  for (rlim_t most = 1000; most < 20'000; most += 3000) {
    set_limit(RLIMIT_FSIZE, most);
    const auto id = cache->store(digest_of(std::to_string(most)), "", noisy_entry(std::to_string(most), 500));
    if (!id.ok()) REQUIRE(id.error().code == ErrorCode::kIo);
    REQUIRE(cache->lookup(digest_of(std::to_string(most)))->size() == (id.ok() ? 1 : 0));
  }
}

TEST_CASE("too few open files or a full disk cost a store and nothing else", "[export_cache]") {
  for (const char* child : {"child runs out of open files", "child meets a limit on the size of files"}) {
    INFO(child);
    const TempDir dir;
    const Digest id = *open_cache(dir.path())->store(digest_of("prekey"), "", noisy_entry("one", 10'000));
    REQUIRE(Child(child, dir.path()).wait_ok());
    const auto cache = open_cache(dir.path());
    REQUIRE(cache->load(id)->has_value());
    REQUIRE(cache->lookup(digest_of("prekey"))->size() == 1);
    REQUIRE(cache->verify({})->clean());
    REQUIRE(cache->stats()->corrupt == 0);
  }
}
