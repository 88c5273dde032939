#include "export_cache/tiers/rocksdb_tier.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "export_cache/files/file_lock.h"
#include "src/base/log.h"
#include "tests/export_cache/support.h"
#include "tests/support/golden.h"
#include "tests/support/temp_dir.h"

using namespace rekindle;
using namespace std::chrono_literals;
using rekindle::testing::database_files;
using rekindle::testing::make_entry;
using rekindle::testing::open_cache;
using rekindle::testing::TempDir;
namespace fs = std::filesystem;

namespace {

const Digest kKey = digest_of("key");

Status put(Tier& tier, const std::string& record, Table table = Table::kEntry) {
  return tier.update([&](TierWriter& writer) -> Status {
    writer.put(table, kKey, record);
    return {};
  });
}

std::optional<std::string> get(Tier& tier, Table table = Table::kEntry) {
  std::optional<std::string> record;
  REQUIRE(tier.read([&](TierReader& view) -> Status {
                REKINDLE_ASSIGN_OR_RETURN(record, view.get(table, kKey));
                return {};
              })
              .ok());
  return record;
}

int quarantines(const std::string& dir) {
  int count = 0;
  for (const auto& file : fs::directory_iterator(dir)) {
    if (file.path().filename().string().starts_with("quarantine-")) ++count;
  }
  return count;
}

}  // namespace

TEST_CASE("an update is seen as a whole or not at all", "[export_cache]") {
  const TempDir dir;
  const auto tier = make_rocksdb_tier({.dir = dir.path()});
  REQUIRE(!get(*tier));
  REQUIRE(put(*tier, "one").ok());
  const Status failed = tier->update([&](TierWriter& writer) -> Status {
    for (const Table table : {Table::kEntry, Table::kPin}) {
      writer.put(table, kKey, "two");
      REQUIRE(*writer.get(table, kKey) == "two");
    }
    return io_error("no");
  });
  REQUIRE(failed.error().message == "no");
  REQUIRE(get(*tier) == "one");
  REQUIRE(!get(*tier, Table::kPin));
}

TEST_CASE("tables do not see each other", "[export_cache]") {
  const TempDir dir;
  const auto tier = make_rocksdb_tier({.dir = dir.path()});
  REQUIRE(tier->update([&](TierWriter& writer) -> Status {
                for (const Table table :
                     {Table::kEntry, Table::kManifest, Table::kSummary, Table::kUsage, Table::kPin}) {
                  writer.put(table, kKey, std::string(1, static_cast<char>(table)));
                }
                return {};
              })
              .ok());
  std::string seen;
  REQUIRE(tier->read([&](TierReader& view) {
                return view.for_each(Table::kManifest, [&](const Digest& key, std::string_view record) {
                  REQUIRE(key == kKey);
                  seen += record;
                });
              })
              .ok());
  REQUIRE(seen == "m");
}

TEST_CASE("the database leaves no log files", "[export_cache]") {
  const TempDir dir;
  const auto tier = make_rocksdb_tier({.dir = dir.path()});
  for (int i = 0; i < 3; ++i) REQUIRE(put(*tier, std::to_string(i)).ok());
  REQUIRE(get(*tier) == "2");
  for (const std::string& name : database_files(dir.path())) REQUIRE(!name.starts_with("LOG"));
}

TEST_CASE("a held lock is an error after the timeout, not a wait for ever", "[export_cache]") {
  const TempDir dir;
  const auto tier = make_rocksdb_tier({.dir = dir.path(), .lock_timeout = 50ms});
  REQUIRE(put(*tier, "one", Table::kPin).ok());
  const auto held = FileLock::acquire(dir / "rekindle.lock", FileLock::Kind::kShared, 1s);
  REQUIRE(held.ok());
  REQUIRE(get(*tier, Table::kPin) == "one");
  REQUIRE(put(*tier, "two", Table::kPin).error().code == ErrorCode::kIo);
  REQUIRE(get(*tier, Table::kPin) == "one");
}

TEST_CASE("entries are read beside a writer that holds the lock", "[export_cache]") {
  const TempDir dir;
  const auto tier = make_rocksdb_tier({.dir = dir.path(), .lock_timeout = 50ms});
  REQUIRE(put(*tier, "one").ok());
  const auto held = FileLock::acquire(dir / "rekindle.lock", FileLock::Kind::kExclusive, 1s);
  REQUIRE(held.ok());
  REQUIRE(get(*tier) == "one");
}

TEST_CASE("what a killed writer left is swept, removed entries leave the disk", "[export_cache]") {
  const TempDir dir;
  const auto tier = make_rocksdb_tier({.dir = dir.path()});
  REQUIRE(put(*tier, "one").ok());
  testing::write_file(dir / "objects/.tmp-1-2", "half of an entry");
  REQUIRE(tier->update([&](TierWriter& writer) -> Status {
                writer.remove(Table::kEntry, kKey);
                REQUIRE(!writer.get(Table::kEntry, kKey)->has_value());
                return {};
              })
              .ok());
  REQUIRE(fs::is_empty(dir / "objects"));
}

TEST_CASE("many small commits keep a small database", "[export_cache]") {
  const TempDir dir;
  const auto tier = make_rocksdb_tier({.dir = dir.path()});
  for (int i = 0; i < 40; ++i) REQUIRE(put(*tier, std::to_string(i), Table::kPin).ok());
  REQUIRE(get(*tier, Table::kPin) == "39");
  const auto names = database_files(dir.path());
  REQUIRE(std::ranges::count_if(names, [](const std::string& name) { return name.ends_with(".sst"); }) <= 17);
}

TEST_CASE("a damaged database is set aside once, and passed over when read-only", "[export_cache]") {
  const TempDir dir;
  std::vector<std::string> reasons;
  RocksDbTierOptions options{.dir = dir.path()};
  options.on_damage = [&](const std::string& reason) { reasons.push_back(reason); };
  const auto tier = make_rocksdb_tier(options);
  options.readonly = true;
  const auto reader = make_rocksdb_tier(options);
  for (int round = 1; round <= 2; ++round) {
    REQUIRE(put(*tier, "one", Table::kPin).ok());
    for (const std::string& name : database_files(dir.path())) {
      if (name.ends_with(".sst") || name == "CURRENT") testing::write_file(dir / ("db/" + name), "damaged");
    }
    REQUIRE(!get(*reader, Table::kPin));
    REQUIRE(quarantines(dir.path()) == (round == 1 ? 0 : 1));
    REQUIRE(!get(*tier, Table::kPin));
    REQUIRE(!get(*tier, Table::kPin));
    REQUIRE(reasons.size() == 2 * static_cast<std::size_t>(round));
  }
  REQUIRE(quarantines(dir.path()) == 1);  // only the newest is kept
}

namespace {

// Runs `work` in a forked child, and tells whether it returned true there within 20 seconds.
bool holds_in_child(const std::function<bool()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(work() ? 0 : 1);
  }
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace

TEST_CASE("a forked child reads and writes after its parent did", "[export_cache]") {
  const TempDir dir;
  const auto tier = make_rocksdb_tier({.dir = dir.path()});
  REQUIRE(holds_in_child([&] { return put(*tier, "zero", Table::kPin).ok(); }));
  REQUIRE(get(*tier, Table::kPin) == "zero");  // which opens a database
  REQUIRE(holds_in_child([&] { return put(*tier, "one", Table::kPin).ok(); }));
  REQUIRE(put(*tier, "two", Table::kPin).ok());
  REQUIRE(holds_in_child([&] {
    return get(*tier, Table::kPin) == "two" && put(*tier, "three", Table::kPin).ok() &&
           holds_in_child([&] { return put(*tier, "four", Table::kPin).ok(); });
  }));
  REQUIRE(get(*tier, Table::kPin) == "four");
  REQUIRE(put(*tier, "five", Table::kPin).ok());
}

TEST_CASE("a child that was forked while its parent used the database is refused", "[export_cache]") {
  const TempDir dir;
  const auto tier = make_rocksdb_tier({.dir = dir.path()});
  const auto is_refused = [&] {
    const Status written = put(*tier, "two");
    return !written.ok() && written.error().code == ErrorCode::kUnsupported;
  };
  bool was_refused = false;
  REQUIRE(tier->update([&](TierWriter&) -> Status {
                was_refused = holds_in_child(is_refused);
                return {};
              })
              .ok());
  REQUIRE(was_refused);
  REQUIRE(put(*tier, "three").ok());
}
