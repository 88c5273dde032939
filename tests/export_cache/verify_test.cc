// verify, and the repair of what it finds.
#include "export_cache/upkeep/verify.h"

#include <filesystem>

#include "export_cache/tiers/rocksdb_tier.h"
#include "src/base/log.h"
#include "tests/export_cache/support.h"
#include "tests/support/golden.h"
#include "tests/support/temp_dir.h"

using namespace rekindle;
using rekindle::testing::make_entry;
using rekindle::testing::open_cache;
using rekindle::testing::TempDir;
using rekindle::testing::write_file;
namespace fs = std::filesystem;

namespace {

const Digest kPrekey = digest_of("prekey");

void tamper(const std::string& dir, Table table, const Digest& key, const std::string& record) {
  const auto tier = make_rocksdb_tier({.dir = dir});
  REQUIRE(tier->update([&](TierWriter& writer) -> Status {
                record.empty() ? writer.remove(table, key) : writer.put(table, key, record);
                return {};
              })
              .ok());
}

std::vector<VerifyProblem::Kind> kinds(const VerifyReport& report) {
  std::vector<VerifyProblem::Kind> found;
  for (const VerifyProblem& problem : report.problems) found.push_back(problem.kind);
  return found;
}

using Kind = VerifyProblem::Kind;

}  // namespace

TEST_CASE("verify finds each kind of harm, and repair leaves a clean cache", "[export_cache]") {
  set_log_level(LogLevel::kOff);
  const TempDir dir;
  auto cache = open_cache(dir.path());
  const Digest id = *cache->store(kPrekey, "obs", make_entry("one", 5000));
  const Digest other = *cache->store(digest_of("other"), "", make_entry("two", 5000));
  const std::string path = dir / ("objects/" + id.hex());
  const std::string object = testing::read_file(path);
  REQUIRE(cache->verify({})->clean());
  std::vector<Kind> expected;
  bool survives = true;
  VerifyOptions options;
  SECTION("a rotten entry") {
    write_file(path, std::string(object).replace(100, 1, "?"));
    expected = {Kind::kUnsoundEntry};
    survives = false;
  }
  SECTION("rotten candidates of an entry") {
    write_file(path, object.substr(0, object.size() - 1));
    expected = {Kind::kUnsoundEntry};
  }
  SECTION("an entry that was deleted") {
    fs::remove(path);
    expected = {Kind::kMissingEntry};
    survives = false;
    options.depth = VerifyOptions::Depth::kQuick;
  }
  SECTION("an unsound summary") {
    tamper(dir.path(), Table::kSummary, id, "?");
    expected = {Kind::kUnsoundRecord, Kind::kUnlistedEntry};
  }
  SECTION("an unsound manifest") {
    tamper(dir.path(), Table::kManifest, kPrekey, "?");
    expected = {Kind::kUnsoundRecord, Kind::kUnlistedEntry};
  }
  SECTION("a lost manifest") {
    tamper(dir.path(), Table::kManifest, kPrekey, "");
    expected = {Kind::kUnlistedEntry};
    options.depth = VerifyOptions::Depth::kQuick;
  }
  SECTION("unsound usage") {
    tamper(dir.path(), Table::kUsage, Digest{}, "?");
    expected = {Kind::kUnsoundRecord};
  }
  SECTION("an entry that the caller rejects") {
    options.depth = VerifyOptions::Depth::kDeep;
    options.inspect = [&](const Digest& seen, const Entry& entry) -> Status {
      return seen == id ? Status(corruption("no graph in " + entry.sections.at("contract"))) : Status();
    };
    expected = {Kind::kRejectedEntry};
    survives = false;
  }
  const auto found = cache->verify(options);
  REQUIRE(kinds(*found) == expected);
  REQUIRE(found->left() == expected.size());
  options.repair = true;
  const auto repaired = cache->verify(options);
  REQUIRE(kinds(*repaired) == expected);
  REQUIRE(repaired->left() == 0);
  REQUIRE(cache->verify({})->clean());
  REQUIRE(cache->stats()->entries == (survives ? 2 : 1));
  REQUIRE(cache->lookup(kPrekey)->size() == (survives ? 1 : 0));
  if (survives) REQUIRE(cache->lookup(kPrekey)->at(0).observations == "obs");
  REQUIRE(cache->load(id)->has_value() == survives);
  REQUIRE(cache->load(other)->has_value());
  set_log_level(LogLevel::kInfo);
}

TEST_CASE("verify reads a sample when asked", "[export_cache]") {
  const TempDir dir;
  auto cache = open_cache(dir.path());
  for (int i = 0; i < 20; ++i)
    REQUIRE(cache->store(digest_of(std::to_string(i)), "", make_entry(std::to_string(i))).ok());
  REQUIRE(cache->verify({})->entries_read == 20);
  REQUIRE(cache->verify({.sample = 0.001})->entries_read == 1);
  REQUIRE(cache->verify({.depth = VerifyOptions::Depth::kQuick})->entries_read == 0);
  const auto some = cache->verify({.sample = 0.5});
  REQUIRE(some->entries == 20);
  REQUIRE(some->bytes_read < cache->stats()->bytes);
}

TEST_CASE("an entry that the system refuses to read is told, left, and keeps nothing else from being checked",
          "[export_cache]") {
  set_log_level(LogLevel::kOff);
  const TempDir dir;
  auto cache = open_cache(dir.path());
  const Digest refused = *cache->store(kPrekey, "", make_entry("one"));
  const Digest rotten = *cache->store(digest_of("other"), "", make_entry("two"));
  const std::string path = dir / ("objects/" + refused.hex());
  fs::rename(path, path + ".kept");
  fs::create_symlink(path + ".kept", path);  // which nobody follows: to root, too, an error of the system
  write_file(dir / ("objects/" + rotten.hex()), "rotten");
  const auto of = [](const VerifyReport& report, Kind kind) {
    return std::ranges::count(report.problems, kind, &VerifyProblem::kind);
  };
  for (const bool repair : {false, true}) {
    const auto report = cache->verify({.repair = repair});
    REQUIRE(report.ok());
    REQUIRE(of(*report, Kind::kUnreadableEntry) == 1);
    REQUIRE(of(*report, Kind::kUnsoundEntry) == 1);
    REQUIRE(report->left() == (repair ? 1 : 2));
  }
  fs::rename(path + ".kept", path);
  REQUIRE(cache->verify({})->clean());
  REQUIRE(cache->load(refused)->has_value());
  set_log_level(LogLevel::kInfo);
}
