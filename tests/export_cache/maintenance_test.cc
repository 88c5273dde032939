// pin, gone, pack and unpack, and what a directory goes through.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "export_cache/formats/object.h"
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

}  // namespace

TEST_CASE("pins are kept and given back, for entries that there are", "[export_cache]") {
  const TempDir dir;
  auto cache = open_cache(dir.path());
  const Digest id = *cache->store(kPrekey, "", make_entry("one"));
  REQUIRE(cache->pin(digest_of("nothing")).error().code == ErrorCode::kNotFound);
  for (int i = 0; i < 2; ++i) REQUIRE(cache->pin(id).ok());
  REQUIRE(open_cache(dir.path())->list()->at(0).pinned);
  for (int i = 0; i < 2; ++i) REQUIRE(cache->unpin(id).ok());
  REQUIRE(!cache->list()->at(0).pinned);
  REQUIRE(cache->pin(id).ok());
  REQUIRE(cache->remove(id).ok());
  REQUIRE(cache->stats()->pinned == 0);
}

TEST_CASE("an entry that is gone has a reason", "[export_cache]") {
  const TempDir dir;
  auto cache = open_cache(dir.path());
  const auto reason = [&](const Digest& key) { return cache->gone(key)->value().reason; };
  const Digest replaced = *cache->store(kPrekey, "same", make_entry("one"));
  const Digest id = *cache->store(kPrekey, "same", make_entry("two"));
  REQUIRE(reason(replaced) == GoneReason::kReplaced);
  write_file(dir / ("objects/" + id.hex()), "rotten");
  set_log_level(LogLevel::kOff);
  REQUIRE(!cache->load(id)->has_value());
  set_log_level(LogLevel::kInfo);
  REQUIRE(reason(id) == GoneReason::kCorrupt);
  REQUIRE(reason(kPrekey) == GoneReason::kCorrupt);
  const Digest foreign = *cache->store(digest_of("foreign"), "", make_entry("foreign"));
  std::string object = testing::read_file(dir / ("objects/" + foreign.hex()));
  object[4] = 9;
  write_file(dir / ("objects/" + foreign.hex()), object);
  set_log_level(LogLevel::kOff);
  REQUIRE(!cache->load(foreign)->has_value());
  set_log_level(LogLevel::kInfo);
  REQUIRE(reason(foreign) == GoneReason::kVersion);
  const Digest last = *cache->store(digest_of("other"), "", make_entry("three"));
  REQUIRE(cache->clear().ok());
  REQUIRE(reason(last) == GoneReason::kCleared);
  REQUIRE(reason(id) == GoneReason::kCorrupt);
  REQUIRE(cache->gone(last)->value().prekey == digest_of("other"));
}

TEST_CASE("tombstones are a ring", "[export_cache]") {
  Tombstones ring;
  for (std::uint64_t i = 0; i < kMaxTombstones + 10; ++i)
    ring.add({digest_of(std::to_string(i)), {}, GoneReason::kEvicted, 1});
  REQUIRE(ring.all().size() == kMaxTombstones);
  REQUIRE(!ring.find(digest_of("9")));
  REQUIRE(ring.find(digest_of("10")));
  const auto back = decode_tombstones(*encode_tombstones(ring));
  REQUIRE(back.ok());
  REQUIRE(back->all() == ring.all());
}

TEST_CASE("a bundle carries entries to another cache", "[export_cache]") {
  const TempDir dir;
  auto from = open_cache(dir / "from"), to = open_cache(dir / "to");
  const Digest one = *from->store(kPrekey, "first", make_entry("one"));
  REQUIRE(*from->store(digest_of("other"), "second", make_entry("one")) == one);  // one entry, two ways to it
  const Digest two = *from->store(kPrekey, "third", make_entry("two"));
  REQUIRE(*from->pack({}, dir / "all") == 2);
  REQUIRE(*from->pack({two}, dir / "two") == 1);
  REQUIRE(from->pack({digest_of("nothing")}, dir / "two").error().code == ErrorCode::kNotFound);
  auto report = to->unpack(dir / "two");
  REQUIRE(report->added == 1);
  report = to->unpack(dir / "all");
  REQUIRE(report->added == 1);
  REQUIRE(report->known == 1);
  REQUIRE(to->lookup(kPrekey)->size() == 2);
  REQUIRE(to->lookup(digest_of("other"))->at(0).observations == "second");
  REQUIRE((*to->load(one))->sections == make_entry("one").sections);
  REQUIRE(to->verify({})->clean());
}

TEST_CASE("a bundle that is not whole changes nothing", "[export_cache]") {
  const TempDir dir;
  auto cache = open_cache(dir / "cache");
  REQUIRE(cache->store(kPrekey, "", make_entry("one")).ok());
  REQUIRE(cache->pack({}, dir / "bundle").ok());
  REQUIRE(cache->clear().ok());
  const std::string bytes = testing::read_file(dir / "bundle");
  REQUIRE(cache->unpack(dir / "none").error().code == ErrorCode::kNotFound);
  for (std::size_t at = 0; at < bytes.size(); at += 7) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 0x55);
    write_file(dir / "bundle", changed);
    const auto report = cache->unpack(dir / "bundle");
    REQUIRE(!report.ok());
    REQUIRE(report.error().code == (at >= 8 && at < 12 ? ErrorCode::kUnsupported : ErrorCode::kCorruption));
    write_file(dir / "bundle", bytes.substr(0, at));
    REQUIRE(!cache->unpack(dir / "bundle").ok());
  }
  REQUIRE(cache->list()->empty());
}

TEST_CASE("a directory of another format is named and left alone", "[export_cache]") {
  const TempDir dir;
  REQUIRE(open_cache(dir.path())->store(kPrekey, "", make_entry("one")).ok());
  REQUIRE(testing::read_file(dir / "format") == "rekindle cache format 2\n");
  const auto refused = [&](const std::string& version) {
    for (const CacheMode mode : {CacheMode::kReadWrite, CacheMode::kReadOnly}) {
      const auto cache = ExportCache::open({.dir = dir.path(), .mode = mode});
      REQUIRE(!cache.ok());
      REQUIRE(cache.error().code == ErrorCode::kUnsupported);
      REQUIRE(cache.error().message.find("format " + version) != std::string::npos);
      REQUIRE(cache.error().message.find("uses format 2") != std::string::npos);
      REQUIRE(cache.error().message.find("REKINDLE_CACHE_DIR") != std::string::npos);
    }
  };
  write_file(dir / "format", "rekindle cache format 3\n");
  refused("3");
  fs::remove(dir / "format");
  const TempDir other;  // for all that format 1 had in the database
  const auto move = [](const TempDir& from, const TempDir& to) {
    for (const std::string name : {"objects", "state", "journal", "misses", "inflight"}) {
      if (fs::exists(from / name)) fs::rename(from / name, to / name);
    }
  };
  move(dir, other);
  refused("1");
  move(other, dir);
  REQUIRE(open_cache(dir.path())->lookup(kPrekey)->size() == 1);
  REQUIRE(testing::read_file(dir / "format") == "rekindle cache format 2\n");
}

TEST_CASE("a damaged or lost file of the format is written again", "[export_cache]") {
  const TempDir dir;
  REQUIRE(open_cache(dir.path())->store(kPrekey, "", make_entry("one")).ok());
  for (const char* damaged :
       {"", "something else\n", "rekindle cache format x\n", "rekindle cache format 2"}) {
    write_file(dir / "format", damaged);
    REQUIRE(open_cache(dir.path(), CacheMode::kReadOnly)->lookup(kPrekey)->size() == 1);
    REQUIRE(testing::read_file(dir / "format") == damaged);
    REQUIRE(open_cache(dir.path())->lookup(kPrekey)->size() == 1);
    REQUIRE(testing::read_file(dir / "format") == "rekindle cache format 2\n");
  }
}

TEST_CASE("a directory of something else is not taken for a cache", "[export_cache]") {
  const auto refused = [](const TempDir& dir, const std::string& own, const std::string& foreign) {
    for (const CacheMode mode : {CacheMode::kReadWrite, CacheMode::kReadOnly}) {
      const auto cache = ExportCache::open({.dir = dir.path(), .mode = mode});
      REQUIRE(!cache.ok());
      REQUIRE(cache.error().code == ErrorCode::kUnsupported);
      for (const std::string& part : {own, foreign, std::string("REKINDLE_CACHE_DIR")})
        REQUIRE(cache.error().message.find(part) != std::string::npos);
    }
  };
  const TempDir repository;  // as of git
  fs::create_directories(repository / "objects");
  write_file(repository / "objects/0123456789abcdef0123456789abcdef", "theirs");
  write_file(repository / "HEAD", "ref: refs/heads/main\n");
  refused(repository, "objects", "HEAD");
  write_file(repository / "format", "theirs, too\n");
  refused(repository, "", "HEAD");
  REQUIRE(testing::read_file(repository / "format") == "theirs, too\n");

  const TempDir other;
  fs::create_directories(other / "objects/pack");
  refused(other, "objects", "objects/pack");
  const TempDir database;
  fs::create_directories(database / "db");
  write_file(database / "README", "");
  refused(database, "db", "README");

  const TempDir shared;  // with nothing that a cache has
  write_file(shared / "README", "");
  REQUIRE(open_cache(shared.path())->store(kPrekey, "", make_entry("one")).ok());
  REQUIRE(open_cache(shared.path())->lookup(kPrekey)->size() == 1);
}

TEST_CASE("what is left of a removed cache is made whole", "[export_cache]") {
  for (const std::string name : {"db/000004.log", "journal/1", "db/CURRENT"}) {
    const TempDir removed;
    open_cache(removed.path());
    for (const auto& each : {"format", "objects", "state"}) fs::remove_all(removed / each);
    if (name != "db/CURRENT") {
      fs::remove_all(removed / "db");
      fs::create_directories(fs::path(removed / name).parent_path());
      write_file(removed / name, "");
    }
    REQUIRE(open_cache(removed.path())->store(kPrekey, "", make_entry("one")).ok());
    REQUIRE(open_cache(removed.path())->lookup(kPrekey)->size() == 1);
  }
}

TEST_CASE("journals of processes that only hit are folded at a start, and lose nothing", "[export_cache]") {
  const TempDir dir;
  const Digest id = *open_cache(dir.path())->store(kPrekey, "", make_entry("one"));
  const auto journals = [&] {
    return std::distance(fs::directory_iterator(dir / "journal"), fs::directory_iterator());
  };
  for (int i = 0; i < 70; ++i) open_cache(dir.path())->record_hit(id, 1);
  REQUIRE(journals() < 70);
  const auto cache = open_cache(dir.path());
  REQUIRE(cache->list()->at(0).hits == 70);
  REQUIRE(cache->stats()->seconds_saved == 70);
}

TEST_CASE("a link of one's own leads to its directory, whatever becomes of it later", "[export_cache]") {
  const TempDir dir;
  for (const char* name : {"real", "other"}) {
    fs::create_directory(dir / name);
    fs::permissions(dir / name, fs::perms(0700));
  }
  fs::create_directory_symlink(dir / "real", dir / "link");
  fs::create_directory_symlink(dir / "link", dir / "second");
  const auto cache = ExportCache::open({.dir = dir / "second"});
  REQUIRE(cache.ok());
  REQUIRE((*cache)->dir() == fs::canonical(dir / "real").string());
  fs::remove(dir / "link");
  fs::create_directory_symlink(dir / "other", dir / "link");
  (*cache)->record_hit(Digest{}, 1);
  REQUIRE(!fs::is_empty(dir / "real/journal"));
  REQUIRE(fs::is_empty(dir / "other"));
}

TEST_CASE("a link that leads nowhere, or is another user's, is refused", "[export_cache]") {
  const TempDir dir;
  fs::create_directory_symlink(dir / "nothing", dir / "link");
  const auto dangling = ExportCache::open({.dir = dir / "link"});
  REQUIRE(dangling.error().code == ErrorCode::kInvalidArgument);
  REQUIRE(dangling.error().message.find("is a link that leads to no directory") != std::string::npos);
  fs::create_directory(dir / "real");
  fs::permissions(dir / "real", fs::perms(0700));
  fs::create_directory_symlink(dir / "real", dir / "theirs");
  if (geteuid() != 0 || lchown((dir / "theirs").c_str(), 65534, 65534) != 0) return;
  const auto theirs = ExportCache::open({.dir = dir / "theirs"});
  REQUIRE(theirs.error().message.find("is a link of user 65534") != std::string::npos);
  REQUIRE(ExportCache::open({.dir = dir / "theirs", .allow_shared_dir = true}).ok());
}

TEST_CASE("an accepted directory that holds another user's cache names the way to share", "[export_cache]") {
  if (geteuid() != 0) return;  // only root can become another user
  const TempDir dir;
  REQUIRE(chmod(dir.path().c_str(), 0755) == 0);
  { REQUIRE(ExportCache::open({.dir = dir / "theirs"}).ok()); }
  REQUIRE(chmod((dir / "theirs").c_str(), 0777) == 0);
  REQUIRE(seteuid(65534) == 0);
  const auto refused = ExportCache::open({.dir = dir / "theirs", .allow_shared_dir = true});
  REQUIRE(seteuid(0) == 0);
  REQUIRE(refused.error().code == ErrorCode::kInvalidArgument);
  REQUIRE(refused.error().message.find("holds private files of another user") != std::string::npos);
  REQUIRE(refused.error().message.find("REKINDLE_REMOTE=file:///") != std::string::npos);
}

TEST_CASE("directories that others may write are refused unless allowed", "[export_cache]") {
  const TempDir dir;
  fs::create_directory(dir / "real");
  REQUIRE(chmod((dir / "real").c_str(), 0770) == 0);
  const auto shared = ExportCache::open({.dir = dir / "real"});
  REQUIRE(shared.error().message.find("REKINDLE_ALLOW_SHARED_DIR=1") != std::string::npos);
  REQUIRE(ExportCache::open({.dir = dir / "real", .allow_shared_dir = true}).ok());
}
