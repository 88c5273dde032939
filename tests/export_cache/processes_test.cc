// Several processes on one cache directory: in turn, at once, killed, and of another user.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "export_cache/export_cache.h"
#include "tests/export_cache/support.h"
#include "tests/support/child.h"
#include "tests/support/temp_dir.h"

using namespace rekindle;
using rekindle::testing::Child;
using rekindle::testing::child_argument;
using rekindle::testing::child_dir;
using rekindle::testing::make_entry;
using rekindle::testing::open_cache;
using rekindle::testing::TempDir;

namespace {

constexpr int kStores = 8;

std::string name_of(const std::string& writer, int i) { return writer + " " + std::to_string(i); }

}  // namespace

TEST_CASE("child stores and hits", "[.child]") {
  auto cache = open_cache(child_dir());
  for (int i = 0; i < kStores; ++i) {
    const std::string name = name_of(child_argument(), i);
    const auto id = cache->store(digest_of("shared"), name, make_entry(name));
    REQUIRE(id.ok());
    REQUIRE(cache->lookup(digest_of("shared")).ok());
    cache->record_hit(*id, 0.5);
  }
}

TEST_CASE("child stores one", "[.child]") {
  auto cache = open_cache(child_dir());
  const auto id = cache->store(digest_of("shared"), child_argument(), make_entry(child_argument()));
  REQUIRE(id.ok());
  REQUIRE(cache->lookup(digest_of("shared")).ok());
  cache->record_hit(*id, 0.5);
}

TEST_CASE("child hits only", "[.child]") {
  auto cache = open_cache(child_dir());
  const auto candidates = cache->lookup(digest_of("prekey"));
  REQUIRE(candidates->size() == 1);
  REQUIRE(cache->load(candidates->at(0).entry)->has_value());
  cache->record_hit(candidates->at(0).entry, 3);
}

TEST_CASE("child stores until it is killed", "[.child]") {
  auto cache = open_cache(child_dir());
  for (int i = 0;; ++i) {
    const std::string name = name_of(child_argument(), i);
    const auto id = cache->store(digest_of(std::to_string(i % 8)), name, make_entry(name, 300'000));
    REQUIRE(id.ok());
    cache->record_hit(*id, 1);
  }
}

TEST_CASE("two processes store under one prekey and lose nothing", "[export_cache]") {
  const TempDir dir;
  {
    Child a("child stores and hits", dir.path(), "a");
    Child b("child stores and hits", dir.path(), "b");
    REQUIRE(a.wait_ok());
    REQUIRE(b.wait_ok());
  }
  auto cache = open_cache(dir.path());
  REQUIRE(cache->lookup(digest_of("shared"))->size() == 2 * kStores);
  const auto stats = cache->stats();
  REQUIRE(stats.ok());
  REQUIRE(stats->stores == 2 * kStores);
  REQUIRE(stats->entries == 2 * kStores);
  REQUIRE(stats->hits == 2 * kStores);
  REQUIRE(stats->lookups == 2 * kStores + 1);
  REQUIRE(stats->seconds_saved == kStores);
  REQUIRE(stats->corrupt == 0);
  REQUIRE(stats->store_failures == 0);
}

TEST_CASE("processes that begin on an empty directory at once lose nothing, however late the disk answers",
          "[export_cache]") {
  const std::array<TempDir, 20> dirs;
  std::vector<std::unique_ptr<Child>> children;
  for (const TempDir& dir : dirs) {
    for (const char* name : {"a", "b", "c"}) {
      children.push_back(std::make_unique<Child>("child stores one", dir.path(), name, REKINDLE_LATE_FILES));
    }
  }
  for (const auto& child : children) REQUIRE(child->wait_ok());
  for (const TempDir& dir : dirs) {
    const auto stats = open_cache(dir.path())->stats();
    REQUIRE(stats->entries == 3);
    REQUIRE(stats->stores == 3);
    REQUIRE(stats->hits == 3);
    REQUIRE(stats->lookups == 3);
  }
}

TEST_CASE("journals of ended processes are read, then folded by the next writer", "[export_cache]") {
  const TempDir dir;
  auto cache = open_cache(dir.path());
  const auto id = cache->store(digest_of("prekey"), "", make_entry("one"));
  for (int i = 0; i < 3; ++i) REQUIRE(Child("child hits only", dir.path()).wait_ok());
  const auto journals = [&] {
    return std::distance(std::filesystem::directory_iterator(dir / "journal"),
                         std::filesystem::directory_iterator());
  };
  REQUIRE(journals() == 3);
  REQUIRE(cache->list()->at(0).hits == 3);
  auto before = cache->stats();
  REQUIRE(journals() == 3);
  REQUIRE(cache->store(digest_of("other"), "", make_entry("two")).ok());
  REQUIRE(journals() == 0);
  auto after = cache->stats();
  REQUIRE(before->stores + 1 == after->stores);
  REQUIRE(after->hits == 3);
  REQUIRE(after->lookups == 3);
  REQUIRE(after->misses == 0);
  REQUIRE(after->seconds_saved == 9);
  cache->record_hit(*id, 1);
  REQUIRE(cache->stats()->hits == 4);
  REQUIRE(cache->list()->size() == 2);
}

TEST_CASE("a writer killed at any moment leaves a sound cache", "[export_cache]") {
  const TempDir dir;
  std::mt19937 random(7);
  for (int round = 0; round < 12; ++round) {
    {
      Child writer("child stores until it is killed", dir.path(), "round " + std::to_string(round));
      // The first one reaches a commit, however slow the disk.
      while (round == 0 && !std::filesystem::exists(dir / "state")) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20 + random() % 150));
      writer.kill_and_wait();
    }
    auto cache = open_cache(dir.path());
    const auto entries = cache->list();
    REQUIRE(entries.ok());
    for (const EntryInfo& info : *entries) REQUIRE(cache->load(info.id)->has_value());
    for (int i = 0; i < 8; ++i) {
      const auto candidates = cache->lookup(digest_of(std::to_string(i)));
      REQUIRE(candidates.ok());
      for (const Candidate& candidate : *candidates) REQUIRE(cache->load(candidate.entry)->has_value());
    }
    const auto stats = cache->stats();
    REQUIRE(stats->corrupt == 0);
    REQUIRE(stats->entries == entries->size());
    REQUIRE(stats->stores >= stats->hits);
    REQUIRE(stats->stores <= stats->hits + static_cast<std::uint64_t>(round) + 1);
  }
  REQUIRE(open_cache(dir.path())->stats()->stores > 0);
}

TEST_CASE("a directory that cannot be written is still read", "[export_cache]") {
  const TempDir dir;
  const auto id = open_cache(dir.path())->store(digest_of("prekey"), "", make_entry("one"));
  namespace fs = std::filesystem;
  for (const auto& file : fs::recursive_directory_iterator(dir.path())) {
    fs::permissions(file, file.is_directory() ? fs::perms(0555) : fs::perms(0444));
  }
  fs::permissions(dir.path(), fs::perms(0555));
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    // Root can write everywhere, so it becomes another user.
    if (geteuid() == 0 && setuid(65534) != 0) _exit(1);
    // Root's directory is used as it is, another user's only when asked.
    const auto writable = ExportCache::open({.dir = dir.path()});
    if (writable.ok() ? (*writable)->mode() != CacheMode::kReadOnly : getuid() == 0) _exit(2);
    auto cache = ExportCache::open({.dir = dir.path(), .mode = CacheMode::kReadOnly});
    if (!cache.ok()) _exit(3);
    const auto candidates = (*cache)->lookup(digest_of("prekey"));
    if (!candidates.ok() || candidates->size() != 1) _exit(4);
    const auto entry = (*cache)->load(*id);
    if (!entry.ok() || !*entry) _exit(5);
    (*cache)->record_hit(*id, 1);
    const auto stats = (*cache)->stats();
    _exit(stats.ok() && stats->hits == 1 && stats->misses == 0 && stats->corrupt == 0 ? 0 : 6);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  for (const auto& file : fs::recursive_directory_iterator(dir.path())) {
    if (file.is_directory()) fs::permissions(file, fs::perms(0700));
  }
  fs::permissions(dir.path(), fs::perms(0700));
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 0);
  const auto stats = open_cache(dir.path())->stats();
  REQUIRE(stats->entries == 1);
  REQUIRE(stats->hits == 0);
}
