#include "export_cache/export_cache.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "export_cache/tiers/rocksdb_tier.h"
#include "tests/export_cache/support.h"
#include "tests/support/temp_dir.h"

using namespace rekindle;
using rekindle::testing::make_entry;
using rekindle::testing::open_cache;
using rekindle::testing::TempDir;

namespace {

const Digest kPrekey = digest_of("prekey");

// Counters alone: what a test expects of them, without the sizes.
CacheStats counters(ExportCache& cache) {
  auto stats = cache.stats();
  REQUIRE(stats.ok());
  stats->bytes = stats->disk_bytes = stats->limit_bytes = 0;
  return *stats;
}

CacheStats expected(CacheStats stats) { return stats; }

// Puts `change(record)` in the place of a stored record, past all checks.
void tamper(const std::string& dir, Table table, const Digest& key,
            const std::function<void(std::string&)>& change) {
  const auto tier = make_rocksdb_tier({.dir = dir});
  REQUIRE(tier->update([&](TierWriter& writer) -> Status {
                REKINDLE_ASSIGN_OR_RETURN(std::optional<std::string> record, writer.get(table, key));
                REQUIRE(record);
                change(*record);
                writer.put(table, key, *record);
                return {};
              })
              .ok());
}

std::string random_bytes(std::size_t size) {
  std::mt19937_64 random(size);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

}  // namespace

TEST_CASE("what is stored is found again by another cache object", "[export_cache]") {
  const TempDir dir;
  const Entry entry = make_entry("one", 200'000);
  Digest id;
  {
    auto cache = open_cache(dir.path());
    REQUIRE(cache->lookup(kPrekey)->empty());
    auto stored = cache->store(kPrekey, std::string("obs\0erved", 9), entry);
    REQUIRE(stored.ok());
    id = *stored;
    REQUIRE(id == entry_id(entry));
  }
  auto cache = open_cache(dir.path());
  auto candidates = cache->lookup(kPrekey);
  REQUIRE(candidates.ok());
  REQUIRE(candidates->size() == 1);
  REQUIRE(candidates->at(0).entry == id);
  REQUIRE(candidates->at(0).observations == std::string("obs\0erved", 9));
  REQUIRE(candidates->at(0).created > 1'500'000'000);
  auto loaded = cache->load(id);
  REQUIRE(loaded.ok());
  REQUIRE(*loaded);
  REQUIRE((*loaded)->sections == entry.sections);
  REQUIRE((*loaded)->meta == entry.meta);
  cache->record_hit(id, 12.5);
  cache->record_bypass("opaque_attr");
  REQUIRE(counters(*cache) == expected({.lookups = 2,
                                        .hits = 1,
                                        .misses = 1,
                                        .stores = 1,
                                        .bypasses = 1,
                                        .bypass_codes = {{"opaque_attr", 1}},
                                        .seconds_saved = 12.5,
                                        .entries = 1}));
  const auto listed = cache->list();
  REQUIRE(listed.ok());
  REQUIRE(listed->size() == 1);
  REQUIRE(listed->at(0).hits == 1);
  REQUIRE(listed->at(0).seconds_saved == 12.5);
  REQUIRE(listed->at(0).sections.at("exported") == 200'000);
  REQUIRE(listed->at(0).meta == entry.meta);
}

TEST_CASE("a hit writes nothing into the database", "[export_cache]") {
  const TempDir dir;
  auto cache = open_cache(dir.path());
  const auto id = cache->store(kPrekey, "", make_entry("one"));
  REQUIRE(id.ok());
  const auto snapshot = [&] {
    std::map<std::string, std::pair<std::uintmax_t, std::filesystem::file_time_type>> files;
    for (const auto& file : std::filesystem::directory_iterator(dir / "db")) {
      files[file.path().string()] = {file.file_size(), file.last_write_time()};
    }
    return files;
  };
  const auto before = snapshot();
  REQUIRE(cache->lookup(kPrekey)->size() == 1);
  REQUIRE(cache->load(*id)->has_value());
  cache->record_hit(*id, 1);
  REQUIRE(snapshot() == before);
  REQUIRE(counters(*cache) ==
          expected({.lookups = 1, .hits = 1, .stores = 1, .seconds_saved = 1, .entries = 1}));
}

TEST_CASE("a corrupt entry is a counted miss and leaves with its candidates", "[export_cache]") {
  const std::pair<const char*, std::function<void(std::string&)>> changes[] = {
      {"magic", [](std::string& r) { r[0] ^= 1; }},
      {"version", [](std::string& r) { r[4] ^= 1; }},
      {"kind", [](std::string& r) { r[6] ^= 1; }},
      {"codec", [](std::string& r) { r[7] ^= 1; }},
      {"key", [](std::string& r) { r[8] ^= 1; }},
      {"raw length", [](std::string& r) { r[24] ^= 1; }},
      {"stored length", [](std::string& r) { r[32] ^= 1; }},
      {"raw digest", [](std::string& r) { r[40] ^= 1; }},
      {"payload", [](std::string& r) { r[r.size() / 2] ^= 1; }},
      {"truncated", [](std::string& r) { r.resize(r.size() / 2); }},
      {"empty", [](std::string& r) { r.clear(); }}};
  for (const auto& [region, change] : changes) {
    INFO(region);
    const TempDir dir;
    auto cache = open_cache(dir.path());
    const auto id = cache->store(kPrekey, "", make_entry("one"));
    const auto sound = cache->store(digest_of("another prekey"), "", make_entry("two"));
    tamper(dir.path(), Table::kEntry, *id, change);
    REQUIRE(cache->lookup(kPrekey)->size() == 1);
    const auto loaded = cache->load(*id);
    REQUIRE(loaded.ok());
    REQUIRE(!loaded->has_value());
    REQUIRE(cache->lookup(kPrekey)->empty());
    REQUIRE(cache->load(*sound)->has_value());
    REQUIRE(counters(*cache) ==
            expected({.lookups = 2, .misses = 2, .corrupt = 1, .stores = 2, .entries = 1}));
  }
}

TEST_CASE("corrupt manifests, summaries and usage are dropped and counted", "[export_cache]") {
  const TempDir dir;
  auto cache = open_cache(dir.path());
  const auto flip = [](std::string& record) { record[record.size() / 2] ^= 1; };
  const auto one = cache->store(kPrekey, "", make_entry("one"));
  const auto two = cache->store(digest_of("another prekey"), "", make_entry("two"));

  tamper(dir.path(), Table::kManifest, kPrekey, flip);
  REQUIRE(cache->lookup(kPrekey)->empty());
  REQUIRE(counters(*cache).corrupt == 1);
  REQUIRE(cache->lookup(kPrekey)->empty());
  REQUIRE(counters(*cache).corrupt == 1);

  tamper(dir.path(), Table::kSummary, *one, flip);
  REQUIRE(cache->list()->size() == 1);
  REQUIRE(!cache->load(*one)->has_value());
  REQUIRE(counters(*cache) == expected({.lookups = 2, .misses = 2, .corrupt = 2, .stores = 2, .entries = 1}));

  // A corrupt manifest does not stop a store; lost counters start again and say so.
  tamper(dir.path(), Table::kManifest, digest_of("another prekey"), flip);
  tamper(dir.path(), Table::kUsage, Digest{}, flip);
  REQUIRE(cache->store(digest_of("another prekey"), "new", make_entry("three")).ok());
  REQUIRE(cache->load(*two)->has_value());
  REQUIRE(counters(*cache) == expected({.corrupt = 2, .stores = 1, .entries = 2}));
}

TEST_CASE("candidates come newest first, a bounded number of them, and take their entries along",
          "[export_cache]") {
  const TempDir dir;
  auto cache = open_cache(dir.path());
  const Digest other = digest_of("another prekey");
  // Shared with another prekey, so it stays when kPrekey drops it.
  REQUIRE(cache->store(other, "", make_entry("0")).ok());
  const auto last = static_cast<int>(kMaxCandidates) + 1;
  for (int i = 0; i <= last; ++i) {
    REQUIRE(cache->store(kPrekey, "obs " + std::to_string(i), make_entry(std::to_string(i))).ok());
  }
  const auto candidates = cache->lookup(kPrekey);
  REQUIRE(candidates->size() == kMaxCandidates);
  REQUIRE(candidates->at(0).observations == "obs " + std::to_string(last));
  REQUIRE(candidates->back().observations == "obs 2");
  REQUIRE(cache->load(entry_id(make_entry("0")))->has_value());
  REQUIRE(!cache->load(entry_id(make_entry("1")))->has_value());
  // The same observations again: the old entry can never be chosen, so it goes.
  REQUIRE(cache->store(kPrekey, "obs " + std::to_string(last), make_entry("again")).ok());
  REQUIRE(cache->lookup(kPrekey)->size() == kMaxCandidates);
  REQUIRE(!cache->load(entry_id(make_entry(std::to_string(last))))->has_value());
  REQUIRE(counters(*cache) ==
          expected({.lookups = 2, .misses = 2, .stores = kMaxCandidates + 4, .entries = kMaxCandidates + 1}));
}

TEST_CASE("entries are found by a unique prefix and removed", "[export_cache]") {
  const TempDir dir;
  auto cache = open_cache(dir.path());
  std::vector<Digest> ids;
  for (int i = 0; i < 17; ++i) {
    ids.push_back(*cache->store(digest_of(std::to_string(i)), "", make_entry(std::to_string(i))));
  }
  REQUIRE(*cache->find(ids[3].hex()) == ids[3]);
  REQUIRE(*cache->find(ids[3].hex().substr(0, 12)) == ids[3]);
  REQUIRE(cache->find("xyz").error().code == ErrorCode::kInvalidArgument);
  REQUIRE(cache->find("").error().code == ErrorCode::kInvalidArgument);
  // 17 entries share 16 first digits.
  int ambiguous = 0;
  for (const char digit : std::string("0123456789abcdef")) {
    const auto found = cache->find(std::string(1, digit));
    if (!found.ok() && found.error().code == ErrorCode::kInvalidArgument) ++ambiguous;
  }
  REQUIRE(ambiguous > 0);

  REQUIRE(cache->remove(ids[3]).ok());
  REQUIRE(cache->remove(ids[3]).error().code == ErrorCode::kNotFound);
  REQUIRE(cache->find(ids[3].hex()).error().code == ErrorCode::kNotFound);
  REQUIRE(cache->lookup(digest_of("3"))->empty());
  REQUIRE(counters(*cache) ==
          expected({.lookups = 1, .misses = 1, .stores = 17, .removals = 1, .entries = 16}));
}

TEST_CASE("removed bytes go back to the disk, clear leaves nothing", "[export_cache]") {
  const TempDir dir;
  auto cache = open_cache(dir.path());
  std::vector<Digest> ids;
  for (int i = 0; i < 4; ++i) {
    Entry entry = make_entry(std::to_string(i));
    entry.sections["exported"] = random_bytes(1'000'000 + static_cast<std::size_t>(i));
    ids.push_back(*cache->store(digest_of(std::to_string(i)), "", entry));
  }
  cache->record_hit(ids[0], 1);
  REQUIRE(cache->stats()->bytes > 4'000'000);
  for (int i = 0; i < 3; ++i) REQUIRE(cache->remove(ids[static_cast<std::size_t>(i)]).ok());
  const auto stats = cache->stats();
  REQUIRE(stats->bytes < 1'100'000);
  REQUIRE(stats->disk_bytes < 1'300'000);
  REQUIRE(cache->load(ids[3])->has_value());
  REQUIRE(cache->clear().ok());
  REQUIRE(cache->list()->empty());
  REQUIRE(cache->stats()->disk_bytes < 100'000);  // a database of tombstones
  REQUIRE(counters(*cache) == CacheStats{});
  REQUIRE(cache->store(kPrekey, "", make_entry("new")).ok());
  REQUIRE(counters(*cache) == expected({.stores = 1, .entries = 1}));
}

TEST_CASE("an entry that is refused counts as a store failure", "[export_cache]") {
  const TempDir dir;
  auto cache = open_cache(dir.path());
  Entry entry = make_entry("one");
  entry.meta = "[]";
  REQUIRE(cache->store(kPrekey, "", entry).error().code == ErrorCode::kInvalidArgument);
  REQUIRE(cache->store(kPrekey, std::string(kMaxObservationBytes + 1, 'o'), make_entry("one")).error().code ==
          ErrorCode::kInvalidArgument);
  REQUIRE(cache->lookup(kPrekey)->empty());
  REQUIRE(counters(*cache) == expected({.lookups = 1, .misses = 1, .store_failures = 2}));
}

TEST_CASE("a read-only cache writes nothing and counts in memory", "[export_cache]") {
  const TempDir dir;
  const auto id = open_cache(dir.path())->store(kPrekey, "", make_entry("one"));
  const auto count_files = [&] {
    std::filesystem::recursive_directory_iterator it(dir.path()), end;
    return std::distance(it, end);
  };
  const auto before = count_files();
  auto cache = open_cache(dir.path(), CacheMode::kReadOnly);
  REQUIRE(cache->lookup(kPrekey)->size() == 1);
  REQUIRE(cache->load(*id)->has_value());
  cache->record_hit(*id, 2);
  REQUIRE(cache->store(kPrekey, "", make_entry("two")).error().code == ErrorCode::kUnsupported);
  REQUIRE(cache->remove(*id).error().code == ErrorCode::kUnsupported);
  REQUIRE(cache->clear().error().code == ErrorCode::kUnsupported);
  REQUIRE(count_files() == before);
  REQUIRE(counters(*cache) ==
          expected(
              {.lookups = 1, .hits = 1, .stores = 1, .store_failures = 1, .seconds_saved = 2, .entries = 1}));
  REQUIRE(counters(*open_cache(dir.path())) == expected({.stores = 1, .entries = 1}));
}

TEST_CASE("a missing directory is empty when read-only and made otherwise", "[export_cache]") {
  const TempDir dir;
  auto reader = open_cache(dir / "cache", CacheMode::kReadOnly);
  REQUIRE(reader->lookup(kPrekey)->empty());
  REQUIRE(!reader->load(kPrekey)->has_value());
  REQUIRE(reader->list()->empty());
  REQUIRE(!std::filesystem::exists(dir / "cache"));
  REQUIRE(counters(*reader) == expected({.lookups = 1, .misses = 1}));

  auto cache = open_cache(dir / "cache");
  REQUIRE(cache->store(kPrekey, "", make_entry("one")).ok());
  REQUIRE(counters(*cache) == expected({.stores = 1, .entries = 1}));

  // Deleted beneath a running process: nothing but errors, and never a crash.
  std::filesystem::remove_all(dir / "cache");
  REQUIRE(cache->lookup(kPrekey)->empty());
  REQUIRE(cache->store(kPrekey, "", make_entry("one")).error().code == ErrorCode::kIo);
  REQUIRE(counters(*cache) == expected({.lookups = 1, .misses = 1, .store_failures = 1}));
}

TEST_CASE("threads share one cache", "[export_cache]") {
  const TempDir dir;
  auto cache = open_cache(dir.path());
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5; ++i) {
        const std::string name = std::to_string(t) + "-" + std::to_string(i);
        const auto id = cache->store(digest_of(name), "", make_entry(name));
        const auto found = cache->lookup(digest_of(name));
        if (!id.ok() || !found.ok() || found->size() != 1 || !cache->load(*id).ok()) ++failures;
        if (id.ok()) cache->record_hit(*id, 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  REQUIRE(failures == 0);
  REQUIRE(counters(*cache) ==
          expected({.lookups = 20, .hits = 20, .stores = 20, .seconds_saved = 20, .entries = 20}));
}
