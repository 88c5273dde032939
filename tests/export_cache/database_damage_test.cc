// What a cache does about files of its database that are damaged, gone, older, or something else.
#include <filesystem>
#include <string>
#include <vector>

#include "src/base/log.h"
#include "tests/export_cache/support.h"
#include "tests/support/golden.h"
#include "tests/support/temp_dir.h"

using namespace rekindle;
using rekindle::testing::database_files;
using rekindle::testing::make_entry;
using rekindle::testing::open_cache;
using rekindle::testing::TempDir;
namespace fs = std::filesystem;

namespace {

// What must hold whatever happened to the database: the entry is found, and what was wrong is counted.
void check_nothing_lost(const std::string& dir, const Entry& entry, const std::string& what) {
  INFO(what);
  auto cache = open_cache(dir);
  const auto candidates = cache->lookup(digest_of("prekey"));
  REQUIRE(candidates.ok());
  REQUIRE(candidates->size() == 1);
  REQUIRE(candidates->at(0).observations == "old");
  const auto loaded = cache->load(candidates->at(0).entry);
  REQUIRE(loaded.ok());
  REQUIRE(loaded->has_value());
  REQUIRE((*loaded)->sections == entry.sections);
  REQUIRE(cache->store(digest_of("prekey"), "new", make_entry("two")).ok());
  REQUIRE(cache->lookup(digest_of("prekey"))->size() == 2);
  REQUIRE(cache->list()->size() == 2);
  REQUIRE(cache->stats()->entries == 2);
  REQUIRE(cache->verify({}).ok());
  REQUIRE(cache->verify({})->clean());
}

}  // namespace

TEST_CASE("flipped bytes in any database file lose no entry", "[export_cache]") {
  set_log_level(LogLevel::kOff);
  const TempDir pristine;
  const Entry entry = make_entry("one", 20'000);
  REQUIRE(open_cache(pristine.path())->store(digest_of("prekey"), "old", entry).ok());
  for (const std::string& name : database_files(pristine.path())) {
    const std::string bytes = testing::read_file(pristine / ("db/" + name));
    for (int step = 0; step < 8 && !bytes.empty(); ++step) {
      const std::size_t at = bytes.size() * static_cast<std::size_t>(step) / 8;
      const TempDir dir;
      fs::copy(pristine.path(), dir.path(), fs::copy_options::recursive);
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ 0xFF);
      testing::write_file(dir / ("db/" + name), changed);
      check_nothing_lost(dir.path(), entry, name + " at " + std::to_string(at));
    }
  }
  set_log_level(LogLevel::kInfo);
}

TEST_CASE("a missing or cut database file loses no entry and is counted", "[export_cache]") {
  set_log_level(LogLevel::kOff);
  const TempDir pristine;
  const Entry entry = make_entry("one", 20'000);
  const auto first = open_cache(pristine.path());
  REQUIRE(first->store(digest_of("prekey"), "old", entry).ok());
  REQUIRE(first->pin(entry_id(entry)).ok());
  for (const std::string& name : database_files(pristine.path())) {
    for (const char* harm : {"removed", "emptied", "halved"}) {
      const TempDir dir;
      fs::copy(pristine.path(), dir.path(), fs::copy_options::recursive);
      const std::string path = dir / ("db/" + name);
      const bool empty = fs::file_size(path) == 0;
      if (harm == std::string("removed")) fs::remove(path);
      if (harm == std::string("emptied")) fs::resize_file(path, 0);
      if (harm == std::string("halved")) fs::resize_file(path, fs::file_size(path) / 2);
      check_nothing_lost(dir.path(), entry, name + " " + harm);
      // Lost commits are never lost silently. The files left out carry no
      // commit: CURRENT is part of every harm.
      const bool carries =
          !empty && (name.ends_with(".sst") || name.starts_with("MANIFEST") || name == "CURRENT");
      if (carries) REQUIRE(open_cache(dir.path())->stats()->corrupt > 0);
    }
  }
  set_log_level(LogLevel::kInfo);
}

TEST_CASE("a database that is gone or replaced by an older copy is written again", "[export_cache]") {
  set_log_level(LogLevel::kOff);
  const TempDir dir;
  const Entry entry = make_entry("one");
  REQUIRE(open_cache(dir.path())->store(digest_of("other"), "", make_entry("zero")).ok());
  fs::copy(dir / "db", dir / "older", fs::copy_options::recursive);
  REQUIRE(open_cache(dir.path())->store(digest_of("prekey"), "old", entry).ok());
  SECTION("gone") { fs::remove_all(dir / "db"); }
  SECTION("older") {
    fs::remove_all(dir / "db");
    fs::rename(dir / "older", dir / "db");
  }
  auto cache = open_cache(dir.path());
  REQUIRE(cache->lookup(digest_of("prekey"))->size() == 1);
  REQUIRE(cache->lookup(digest_of("other"))->size() == 1);
  REQUIRE(cache->list()->size() == 2);
  REQUIRE(cache->stats()->corrupt == 1);
  // The object that met the damage reports it once; another one finds nothing wrong any more.
  REQUIRE(open_cache(dir.path())->verify({})->clean());
  set_log_level(LogLevel::kInfo);
}

TEST_CASE("a file in the place of a directory is put aside", "[export_cache]") {
  set_log_level(LogLevel::kOff);
  const TempDir dir;
  const Entry entry = make_entry("one");
  REQUIRE(open_cache(dir.path())->store(digest_of("prekey"), "old", entry).ok());
  const char* name = GENERATE("db", "objects");
  fs::remove_all(dir / name);
  testing::write_file(dir / name, "no directory");
  auto cache = open_cache(dir.path());
  if (name == std::string("db")) {  // written again from the entries
    REQUIRE(cache->lookup(digest_of("prekey"))->size() == 1);
    REQUIRE(cache->load(entry_id(entry))->has_value());
  } else {
    REQUIRE(!cache->load(entry_id(entry))->has_value());
  }
  REQUIRE(cache->store(digest_of("prekey"), "new", entry).ok());
  REQUIRE(open_cache(dir.path())->load(entry_id(entry))->has_value());
  REQUIRE(open_cache(dir.path())->verify({})->clean());
  set_log_level(LogLevel::kInfo);
}
