#include "export_cache/misses/miss_log.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/export_cache/support.h"
#include "tests/support/temp_dir.h"

using namespace rekindle;
using rekindle::testing::open_cache;
using rekindle::testing::TempDir;

namespace {

Miss make_miss(std::int64_t time) {
  return {.time = time,
          .model = "tiny.Tiny",
          .reason = "key",
          .prekey = digest_of("prekey"),
          .nearest = digest_of("entry"),
          .nearest_created = 5,
          .equal = 40,
          .total = 41,
          .differences = {{"model.scale", "1.0", "2.0", 3}}};
}

std::vector<std::filesystem::path> files(const std::string& dir) {
  return {std::filesystem::directory_iterator(dir), {}};
}

}  // namespace

TEST_CASE("a miss comes back as it was", "[export_cache]") {
  const TempDir dir;
  REQUIRE(read_misses(dir / "misses").empty());
  const Miss miss = make_miss(7);
  REQUIRE(log_miss(dir / "misses", miss).ok());
  const auto found = read_misses(dir / "misses");
  REQUIRE(found.size() == 1);
  REQUIRE(found[0].time == 7);
  REQUIRE(found[0].model == miss.model);
  REQUIRE(found[0].reason == miss.reason);
  REQUIRE(found[0].prekey == miss.prekey);
  REQUIRE(found[0].nearest == miss.nearest);
  REQUIRE(found[0].nearest_created == 5);
  REQUIRE(found[0].equal == 40);
  REQUIRE(found[0].total == 41);
  REQUIRE(found[0].omitted == 0);
  REQUIRE(found[0].differences == miss.differences);
}

TEST_CASE("the newest misses are kept, newest first", "[export_cache]") {
  const TempDir dir;
  for (std::size_t i = 0; i < kMaxMisses + 3; ++i)
    REQUIRE(log_miss(dir.path(), make_miss(static_cast<std::int64_t>(i))).ok());
  const auto found = read_misses(dir.path());
  REQUIRE(found.size() == kMaxMisses);
  REQUIRE(found.front().time == kMaxMisses + 2);
  REQUIRE(found.back().time == 3);
  REQUIRE(files(dir.path()).size() == kMaxMisses);
}

TEST_CASE("a miss is bounded", "[export_cache]") {
  const TempDir dir;
  Miss miss = make_miss(1);
  miss.differences.assign(kMaxMissDifferences + 5,
                          {"model.text", std::string(kMaxMissText - 1, 'x') + "\u00e9", "y"});
  REQUIRE(log_miss(dir.path(), miss).ok());
  const auto found = read_misses(dir.path());
  REQUIRE(found.at(0).differences.size() == kMaxMissDifferences);
  REQUIRE(found[0].omitted == 5);
  REQUIRE(found[0].differences[0].before == std::string(kMaxMissText - 1, 'x'));  // cut at a character
}

TEST_CASE("a damaged miss is left out", "[export_cache]") {
  const TempDir dir;
  REQUIRE(log_miss(dir.path(), make_miss(1)).ok());
  const std::filesystem::path file = files(dir.path()).at(0);
  std::string bytes;
  {
    std::ifstream in(file, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  for (std::size_t at = 0; at < bytes.size(); at += 7) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    std::ofstream(file, std::ios::binary | std::ios::trunc) << damaged;
    REQUIRE(read_misses(dir.path()).empty());
  }
}

TEST_CASE("a cache keeps misses, except read-only, and clear forgets them", "[export_cache]") {
  const TempDir dir;
  open_cache(dir.path())->record_miss(make_miss(1));
  const auto readonly = open_cache(dir.path(), CacheMode::kReadOnly);
  readonly->record_miss(make_miss(2));
  REQUIRE(readonly->misses().size() == 1);
  REQUIRE(open_cache(dir.path())->clear().ok());
  REQUIRE(readonly->misses().empty());
}
