#include "export_cache/upkeep/prune.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "export_cache/upkeep/usage.h"
#include "tests/export_cache/support.h"
#include "tests/support/temp_dir.h"

using namespace rekindle;
using rekindle::testing::make_entry;
using rekindle::testing::open_cache;
using rekindle::testing::TempDir;

namespace {

constexpr std::int64_t kNow = 2'000'000'000, kDay = 86400;

EntryInfo info(const std::string& name, std::int64_t days_old, std::uint64_t bytes = 1000, double cost = 10) {
  EntryInfo entry;
  entry.id = digest_of(name);
  entry.created = kNow - days_old * kDay;
  entry.stored_bytes = bytes;
  entry.cost_seconds = cost;
  entry.meta = R"({"model":")" + name.substr(0, 1) + R"(","torch":"2.11.0"})";
  return entry;
}

std::vector<std::string> names(const std::vector<PruneItem>& items, const std::vector<std::string>& of) {
  std::vector<std::string> found;
  for (const PruneItem& item : items) {
    for (const std::string& name : of) {
      if (digest_of(name) == item.entry.id) found.push_back(name);
    }
  }
  return found;
}

const std::vector<std::string> kNames = {"a1", "a2", "a3", "b1", "b2"};
using Names = std::vector<std::string>;

std::vector<EntryInfo> listing() {
  return {info("a1", 1), info("a2", 10), info("a3", 40), info("b1", 5), info("b2", 50)};
}

Names removed(const PrunePolicy& policy, const std::vector<EntryInfo>& entries = listing()) {
  return names(plan_prune(entries, policy, kNow).removed, kNames);
}

}  // namespace

TEST_CASE("a policy selects by age, use, model and torch", "[export_cache]") {
  REQUIRE(removed({}) == Names{});
  REQUIRE(removed({.older_than = 30 * kDay}) == Names{"b2", "a3"});
  REQUIRE(removed({.model = "a"}) == Names{"a3", "a2", "a1"});
  REQUIRE(removed({.model = "a", .older_than = 30 * kDay}) == Names{"a3"});
  REQUIRE(removed({.not_torch = "2.11.0"}) == Names{});
  REQUIRE(removed({.not_torch = "2.12.0"}).size() == 5);
  auto used = listing();
  used[4].last_used = kNow - kDay;
  REQUIRE(removed({.unused_since = 30 * kDay}, used) == Names{"a3"});
  REQUIRE(plan_prune(used, {.unused_since = 30 * kDay}, kNow).removed[0].why ==
          "unused for 40 days, the limit is 30 days");
}

TEST_CASE("the newest of each model can be kept", "[export_cache]") {
  REQUIRE(removed({.keep_last = 1}) == Names{"b2", "a3", "a2"});
  REQUIRE(removed({.older_than = 30 * kDay, .keep_last = 2}) == Names{"a3"});
  REQUIRE(removed({.keep_last = 2, .max_bytes = 0}) == Names{"a3"});
}

TEST_CASE("pinned entries and those in use stay, and the plan says so", "[export_cache]") {
  auto entries = listing();
  entries[2].pinned = true;
  entries[4].last_used = kNow - 60;
  const PrunePlan plan = plan_prune(entries, {.older_than = 30 * kDay, .max_bytes = 0}, kNow);
  REQUIRE(names(plan.removed, kNames) == Names{"a2", "b1", "a1"});
  REQUIRE(names(plan.spared, kNames) == Names{"b2", "a3"});
  REQUIRE(plan.spared[0].why == "in use");
  REQUIRE(plan.spared[1].why == "pinned");
}

TEST_CASE("what saves the most seconds per byte lately is kept", "[export_cache]") {
  const EntryInfo plain = info("a1", 1);
  EntryInfo costly = plain, large = plain, old = plain, hot = plain, once_hot = plain;
  costly.cost_seconds = 90;
  large.stored_bytes = 100'000;
  old.created -= 60 * kDay;
  hot.last_used = kNow - kDay;
  hot.heat = 5;
  once_hot.created = once_hot.last_used = kNow - 90 * kDay;
  once_hot.heat = 100;
  const double value = value_per_byte(plain, kNow);
  REQUIRE(value_per_byte(costly, kNow) > value);
  REQUIRE(value_per_byte(hot, kNow) > value);
  REQUIRE(value_per_byte(large, kNow) < value);
  REQUIRE(value_per_byte(old, kNow) < value);
  REQUIRE(value_per_byte(once_hot, kNow) < value);
  // One export of 90 seconds outlives many small ones of 0.3.
  const std::vector<EntryInfo> entries = {info("a1", 5, 1000, 0.3), info("a2", 5, 5000, 90),
                                          info("a3", 5, 1000, 0.3)};
  REQUIRE(removed({.max_bytes = 6000}, entries) == Names{"a1"});
}

TEST_CASE("a clock that was set back neither protects nor harms", "[export_cache]") {
  auto entries = listing();
  entries[0].created = kNow + 100 * kDay;
  entries[0].last_used = kNow + 200 * kDay;
  REQUIRE(removed({.older_than = 30 * kDay}, entries) == Names{"b2", "a3"});
  REQUIRE(removed({.max_bytes = 0}, entries).size() == 5);
  REQUIRE(std::isfinite(value_per_byte(entries[0], kNow)));
}

TEST_CASE("heat does not depend on the order of journals", "[export_cache]") {
  EntryUsage forward, backward;
  const std::vector<std::int64_t> times = {kNow - 20 * kDay, kNow - 9 * kDay, kNow - kDay, kNow};
  for (const std::int64_t time : times) forward.hit(time, 1);
  for (auto it = times.rbegin(); it != times.rend(); ++it) backward.hit(*it, 1);
  REQUIRE(forward.heat == Approx(backward.heat));
  REQUIRE(forward.heat > 1);
  REQUIRE(forward.heat < 3);
  REQUIRE(forward.last_used == backward.last_used);
}

TEST_CASE("a dry run names exactly what a prune removes", "[export_cache]") {
  const TempDir dir;
  auto cache = open_cache(dir.path());
  std::vector<Digest> ids;
  for (const char* model : {"A", "B"}) {
    Entry entry = make_entry(model, 10'000);
    entry.meta = std::string(R"({"model":")") + model + R"(","torch":"2.11.0","cost_seconds":2})";
    ids.push_back(*cache->store(digest_of(model), "", entry));
  }
  // Just stored: in use.
  const auto dry = cache->prune({.model = "A"}, true);
  REQUIRE(dry.ok());
  REQUIRE(dry->plan.removed.empty());
  REQUIRE(dry->plan.spared.size() == 1);
  REQUIRE(cache->prune({}, false).error().code == ErrorCode::kInvalidArgument);
  testing::make_older(dir.path(), 3600);
  REQUIRE(cache->pin(ids[1]).ok());
  const auto reader = open_cache(dir.path(), CacheMode::kReadOnly);
  const auto planned = reader->prune({.not_torch = "2.12.0"}, true);
  REQUIRE(planned->plan.removed.size() == 1);
  REQUIRE(planned->plan.removed[0].entry.id == ids[0]);
  REQUIRE(planned->plan.spared[0].entry.id == ids[1]);
  REQUIRE(cache->list()->size() == 2);
  REQUIRE(reader->prune({.not_torch = "2.12.0"}, false).error().code == ErrorCode::kUnsupported);
  const auto done = cache->prune({.not_torch = "2.12.0"}, false);
  REQUIRE(done->plan.removed.size() == 1);
  REQUIRE(done->bytes_after < done->bytes_before);
  REQUIRE(done->bytes_after == cache->stats()->bytes);
  REQUIRE(cache->list()->size() == 1);
  REQUIRE(cache->lookup(digest_of("A"))->empty());
  REQUIRE(cache->stats()->removals == 1);
  REQUIRE(cache->gone(ids[0])->value().reason == GoneReason::kRemoved);
  REQUIRE(cache->gone(digest_of("A"))->value().id == ids[0]);
  REQUIRE(!cache->gone(ids[1])->has_value());
}

TEST_CASE("a store above the size limit evicts to the low water mark, and space returns", "[export_cache]") {
  const TempDir dir;
  constexpr std::uint64_t kLimit = 1'000'000;
  const auto open_limited = [&](std::uint64_t limit) {
    auto cache = ExportCache::open({.dir = dir.path(), .size_limit = limit});
    REQUIRE(cache.ok());
    return *std::move(cache);
  };
  auto cache = open_limited(kLimit);
  std::vector<Digest> ids;
  for (int i = 0; i < 5; ++i) {
    ids.push_back(
        *cache->store(digest_of(std::to_string(i)), "", testing::noisy_entry(std::to_string(i), 190'000)));
  }
  testing::make_older(dir.path(), 3600);
  REQUIRE(cache->pin(ids[0]).ok());
  cache->record_hit(ids[1], 1);
  REQUIRE(cache->stats()->evictions == 0);
  ids.push_back(*cache->store(digest_of("5"), "", testing::noisy_entry("5", 190'000)));
  const auto stats = cache->stats();
  REQUIRE(stats->evictions == 2);
  REQUIRE(stats->bytes <= kLowWater * kLimit);
  REQUIRE(stats->disk_bytes < kLimit + 100'000);
  REQUIRE(stats->pinned == 1);
  for (const std::size_t kept : {0, 1, 5}) REQUIRE(cache->load(ids[kept])->has_value());
  REQUIRE(cache->gone(digest_of("2"))->value().reason == GoneReason::kEvicted);
  // A lower limit is kept from the next start on, even by a process that never stores.
  testing::make_older(dir.path(), 3600);
  const auto start = open_limited(400'000);
  REQUIRE(start->stats()->bytes <= 340'000);
  REQUIRE(start->stats()->limit_bytes == 400'000);
  REQUIRE(start->load(ids[0])->has_value());
  REQUIRE(start->verify({})->clean());
}
