// `rekindle cache doctor` names what is wrong, and its exit code says whether anything is.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

#include "tests/cli/support.h"
#include "tests/export_cache/support.h"
#include "tests/support/golden.h"
#include "tests/support/temp_dir.h"

using namespace rekindle;
using rekindle::testing::contains;
using rekindle::testing::rekindle_command;
using rekindle::testing::TempDir;

namespace {

// The finding of a topic; the command must end with `code`.
nlohmann::json finding(const std::string& dir, const std::string& topic, int code) {
  const auto outcome = rekindle_command("cache doctor --json --dir " + dir);
  INFO(outcome.output);
  REQUIRE(outcome.code == code);
  const auto json = nlohmann::json::parse(outcome.output);
  for (const auto& row : json["findings"]) {
    if (row["topic"] == topic) return row;
  }
  FAIL("no finding about " << topic);
  return {};
}

}  // namespace

TEST_CASE("the doctor finds nothing wrong with a sound cache", "[cli]") {
  const TempDir dir;
  REQUIRE(testing::open_cache(dir.path())->store(digest_of("prekey"), "", testing::make_entry("one")).ok());
  REQUIRE(finding(dir.path(), "database", 0)["value"].get<std::string>().starts_with("1 entries, "));
  REQUIRE(finding(dir.path(), "mode", 0)["value"] == "0700");
  REQUIRE(finding(dir.path(), "owner", 0)["verdict"] == "ok");
  REQUIRE(finding(dir.path(), "lock", 0)["value"] == "free");
  // In a root of its own (chroot), the table of mounts does not reach the directory.
  const auto file_system = finding(dir.path(), "file system", 0)["value"].get<std::string>();
  REQUIRE((contains(file_system, " on /") || file_system == "unknown"));
  const auto page = rekindle_command("cache doctor --dir " + dir.path());
  REQUIRE(page.code == 0);
  REQUIRE(contains(page.output, "read and write"));
}

TEST_CASE("the doctor says what to do about a missing directory, and about one that is none", "[cli]") {
  const TempDir dir;
  REQUIRE(finding(dir / "none", "directory", 0)["advice"] == "It does not exist; the first export makes it");
  testing::write_file(dir / "file", "");
  REQUIRE(finding(dir / "file", "directory", 1)["verdict"] == "wrong");
}

TEST_CASE("the doctor names a directory that everybody may write", "[cli]") {
  const TempDir dir;
  REQUIRE(chmod(dir.path().c_str(), 0777) == 0);
  REQUIRE(contains(finding(dir.path(), "mode", 1)["advice"], "chmod 700 " + dir.path()));
  REQUIRE(finding(dir.path(), "database", 1)["value"] == "refused");
}

TEST_CASE("the doctor names the process that holds the lock", "[cli]") {
  const TempDir dir;
  REQUIRE(testing::open_cache(dir.path())->store(digest_of("prekey"), "", testing::make_entry("one")).ok());
  const int fd = open((dir / "rekindle.lock").c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(flock(fd, LOCK_SH) == 0);
  const auto found = finding(dir.path(), "lock", 0);
  close(fd);
  REQUIRE(found["value"] == "held for reading by cli_test (pid " + std::to_string(getpid()) + ")");
  REQUIRE(found["verdict"] == "note");
}

TEST_CASE("the doctor tells of a quarantined database", "[cli]") {
  const TempDir dir;
  auto cache = testing::open_cache(dir.path());
  REQUIRE(cache->store(digest_of("prekey"), "", testing::make_entry("one")).ok());
  testing::write_file(dir / "db/CURRENT", "nonsense");
  REQUIRE(cache->list()->size() == 1);  // written again from the entries
  REQUIRE(contains(finding(dir.path(), "quarantine", 0)["advice"], "rm -r " + dir.path()));
  REQUIRE(contains(finding(dir.path(), "database", 0)["advice"], "rekindle cache verify"));
}
