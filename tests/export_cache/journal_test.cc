#include "export_cache/upkeep/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/golden.h"
#include "tests/support/temp_dir.h"

using namespace rekindle;
using rekindle::testing::TempDir;

namespace {

const Digest kEntry = digest_of("entry");

CacheEvent hit(double seconds, std::int64_t time = 100) {
  CacheEvent event;
  event.kind = EventKind::kHit;
  event.entry = kEntry;
  event.seconds = seconds;
  event.time = time;
  return event;
}

std::vector<std::string> files(const std::string& dir) {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(dir)) names.push_back(file.path().string());
  return names;
}

Usage merged(const std::string& dir, Usage usage = {}) {
  merge_journals(dir, usage);
  return usage;
}

}  // namespace

TEST_CASE("events of a journal are read back without being consumed", "[export_cache]") {
  const TempDir temp;
  Journal journal(temp / "journal");
  REQUIRE(journal.append(hit(1.5, 200)).ok());
  REQUIRE(journal.append(hit(2.0, 100)).ok());
  CacheEvent bypass;
  bypass.kind = EventKind::kBypass;
  bypass.code = "opaque_attr";
  REQUIRE(journal.append(bypass).ok());
  for (int i = 0; i < 2; ++i) {
    const Usage usage = merged(temp / "journal");
    REQUIRE(usage.counters.hits == 2);
    REQUIRE(usage.counters.seconds_saved == 3.5);
    REQUIRE(usage.counters.bypass_codes.at("opaque_attr") == 1);
    REQUIRE(usage.entries.at(kEntry).last_used == 200);
  }
  REQUIRE(files(temp / "journal").size() == 1);
}

TEST_CASE("a torn or forged tail ends a journal and keeps what came before", "[export_cache]") {
  const TempDir temp;
  Journal journal(temp / "journal");
  REQUIRE(journal.append(hit(1)).ok());
  const std::string path = files(temp / "journal").at(0);
  const std::string one = testing::read_file(path);
  for (std::size_t cut = 1; cut < one.size(); ++cut) {
    testing::write_file(path, one + one.substr(0, cut));
    REQUIRE(merged(temp / "journal").counters.hits == 1);
  }
  for (std::size_t at = 0; at < one.size(); ++at) {
    std::string changed = one;
    changed[at] = static_cast<char>(changed[at] ^ 0x40);
    testing::write_file(path, one + changed);
    REQUIRE(merged(temp / "journal").counters.hits == 1);
  }
}

TEST_CASE("a fold counts each event once, even when its files outlive it", "[export_cache]") {
  const TempDir temp;
  Journal journal(temp / "journal");
  REQUIRE(journal.append(hit(1)).ok());
  const std::string path = files(temp / "journal").at(0);
  const std::string bytes = testing::read_file(path);

  Usage usage;
  JournalFold(temp / "journal", usage).remove_files();
  REQUIRE(usage.counters.hits == 1);
  REQUIRE(files(temp / "journal").empty());

  // As if the writer had been killed between commit and removal.
  testing::write_file(path, bytes);
  REQUIRE(merged(temp / "journal", usage).counters.hits == 1);
  JournalFold(temp / "journal", usage).remove_files();
  REQUIRE(usage.counters.hits == 1);
  REQUIRE(usage.folded.size() == 1);
  { JournalFold again(temp / "journal", usage); }
  REQUIRE(usage.folded.empty());
}

TEST_CASE("a journal goes on in a new file during and after a fold", "[export_cache]") {
  const TempDir temp;
  Journal journal(temp / "journal");
  REQUIRE(journal.append(hit(1)).ok());
  Usage usage;
  {
    JournalFold fold(temp / "journal", usage);
    REQUIRE(journal.append(hit(1)).ok());
    REQUIRE(files(temp / "journal").size() == 2);
    fold.remove_files();
  }
  REQUIRE(journal.append(hit(1)).ok());
  REQUIRE(usage.counters.hits == 1);
  REQUIRE(merged(temp / "journal", usage).counters.hits == 3);
}

TEST_CASE("a forked child writes a journal of its own", "[export_cache]") {
  const TempDir temp;
  Journal journal(temp / "journal");
  REQUIRE(journal.append(hit(1)).ok());
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) _exit(journal.append(hit(1)).ok() ? 0 : 1);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  REQUIRE(files(temp / "journal").size() == 2);
  REQUIRE(merged(temp / "journal").counters.hits == 2);
}

TEST_CASE("usage comes back as it was and refuses changed bytes", "[export_cache]") {
  Usage usage;
  usage.apply(hit(2.5));
  usage.folded["1-0-7.journal1"] = 61;
  const auto record = encode_usage(usage);
  REQUIRE(record.ok());
  const auto back = decode_usage(*record);
  REQUIRE(back.ok());
  REQUIRE(back->counters == usage.counters);
  REQUIRE(back->entries.at(kEntry).seconds_saved == 2.5);
  REQUIRE(back->folded == usage.folded);
  REQUIRE(!decode_usage(record->substr(1)).ok());
}

TEST_CASE("bypass codes are bounded in number", "[export_cache]") {
  Usage usage;
  for (std::size_t i = 0; i < 2 * kMaxCodes; ++i) {
    CacheEvent event;
    event.kind = EventKind::kBypass;
    event.code = "code" + std::to_string(i);
    usage.apply(event);
  }
  REQUIRE(usage.counters.bypasses == 2 * kMaxCodes);
  REQUIRE(usage.counters.bypass_codes.size() == kMaxCodes + 1);
  REQUIRE(usage.counters.bypass_codes.at("other") == kMaxCodes);
}
