// One export per key: among processes that start at once, that die, stop, fork, or let the others go on.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "export_cache/export_cache.h"
#include "tests/export_cache/support.h"
#include "tests/support/child.h"
#include "tests/support/temp_dir.h"

using namespace rekindle;
using namespace std::chrono_literals;
using rekindle::testing::Child;
using rekindle::testing::child_argument;
using rekindle::testing::child_dir;
using rekindle::testing::make_entry;
using rekindle::testing::open_cache;
using rekindle::testing::TempDir;

namespace {

const Digest kKey = digest_of("cold");
constexpr LeaseOptions kQuick{.heartbeat = 50ms, .silence = 600ms};

LeaseState wait_for(Lease& lease, std::chrono::milliseconds timeout = 20s) {
  const auto state = lease.wait(timeout);
  REQUIRE(state.ok());
  return *state;
}

bool inflight(const TempDir& dir) { return std::filesystem::exists(dir / ("inflight/" + kKey.hex())); }

// Until another process holds the lease: its file is made before it is locked, and written after.
void wait_until_held(const TempDir& dir) {
  const std::string file = dir / ("inflight/" + kKey.hex());
  const auto held = [&] { return inflight(dir) && std::filesystem::file_size(file) > 0; };
  for (int i = 0; i < 2000 && !held(); ++i) std::this_thread::sleep_for(5ms);
  REQUIRE(held());
}

}  // namespace

TEST_CASE("child exports unless somebody did", "[.child]") {
  auto cache = open_cache(child_dir());
  if (!cache->lookup(kKey)->empty()) return;
  const auto lease = cache->lease(kKey);
  REQUIRE(wait_for(*lease) == LeaseState::kHeld);
  if (!cache->lookup(kKey)->empty()) return;
  std::ofstream(child_dir() + "/exports", std::ios::app) << "one\n";
  std::this_thread::sleep_for(300ms);
  REQUIRE(cache->store(kKey, "", make_entry("made once")).ok());
}

TEST_CASE("child holds the lease", "[.child]") {
  Lease lease(child_dir(), kKey, kQuick);
  REQUIRE(wait_for(lease) == LeaseState::kHeld);
  if (child_argument() == "and opens it") {
    std::this_thread::sleep_for(300ms);
    REQUIRE(lease.open().ok());
    return;
  }
  if (child_argument() == "and forks" && fork() == 0) {
    std::this_thread::sleep_for(3s);
    _exit(0);
  }
  std::this_thread::sleep_for(60s);
}

TEST_CASE("eight processes on one cold key make it once", "[export_cache]") {
  const TempDir dir;
  {
    std::vector<std::unique_ptr<Child>> children;
    for (int i = 0; i < 8; ++i) {
      children.push_back(std::make_unique<Child>("child exports unless somebody did", dir.path()));
    }
    for (auto& child : children) REQUIRE(child->wait_ok());
  }
  REQUIRE(std::filesystem::file_size(dir / "exports") == 4);
  REQUIRE(open_cache(dir.path())->lookup(kKey)->size() == 1);
  REQUIRE_FALSE(inflight(dir));
}

TEST_CASE("the lease of a killed process is taken over", "[export_cache]") {
  const TempDir dir;
  Child holder("child holds the lease", dir.path());
  wait_until_held(dir);
  Lease lease(dir.path(), kKey);
  REQUIRE(wait_for(lease, 100ms) == LeaseState::kWaiting);
  REQUIRE(lease.waited());
  holder.kill_and_wait();
  REQUIRE(wait_for(lease) == LeaseState::kHeld);
  lease.release();
  REQUIRE_FALSE(inflight(dir));
}

TEST_CASE("a holder of which only a forked child lives is not waited for", "[export_cache]") {
  const TempDir dir;
  Child holder("child holds the lease", dir.path(), "and forks");
  wait_until_held(dir);
  std::this_thread::sleep_for(200ms);
  Lease lease(dir.path(), kKey, kQuick);
  REQUIRE(wait_for(lease, 100ms) == LeaseState::kWaiting);
  holder.kill_and_wait();
  const LeaseState state = wait_for(lease);
  REQUIRE((state == LeaseState::kSilent || state == LeaseState::kHeld));
}

TEST_CASE("a holder that lives is waited for beyond the limit of silence", "[export_cache]") {
  const TempDir dir;
  Child holder("child holds the lease", dir.path());
  wait_until_held(dir);
  Lease lease(dir.path(), kKey, kQuick);
  REQUIRE(wait_for(lease, 3 * kQuick.silence) == LeaseState::kWaiting);
  holder.kill_and_wait();
}

TEST_CASE("an opened lease lets those go on who waited, and nobody else", "[export_cache]") {
  const TempDir dir;
  Child holder("child holds the lease", dir.path(), "and opens it");
  wait_until_held(dir);
  Lease waiting(dir.path(), kKey, kQuick);
  REQUIRE(wait_for(waiting) == LeaseState::kOpen);
  REQUIRE(wait_for(waiting) == LeaseState::kOpen);
  REQUIRE(holder.wait_ok());
  Lease later(dir.path(), kKey, kQuick);
  REQUIRE(wait_for(later) == LeaseState::kHeld);
  REQUIRE_FALSE(later.waited());
}

TEST_CASE("a forked child does not end its parent's lease", "[export_cache]") {
  const TempDir dir;
  Lease lease(dir.path(), kKey, kQuick);
  REQUIRE(wait_for(lease) == LeaseState::kHeld);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    lease.release();
    _exit(0);
  }
  REQUIRE(waitpid(child, nullptr, 0) == child);
  Lease other(dir.path(), kKey, kQuick);
  REQUIRE(wait_for(other, 100ms) == LeaseState::kWaiting);
  REQUIRE(other.holder() == getpid());
  lease.release();
  REQUIRE(wait_for(other) == LeaseState::kHeld);
}

TEST_CASE("a lease in a directory that cannot be written is an error", "[export_cache]") {
  Lease lease("/proc/no such directory", kKey, kQuick);
  const auto state = lease.wait(10ms);
  REQUIRE_FALSE(state.ok());
  REQUIRE(state.error().code == ErrorCode::kIo);
}
