// `rekindle cache explain`: differences between entries, and the misses that were written down.
#include <catch2/catch.hpp>
#include <string>

#include "export_cache/export_cache.h"
#include "tests/cli/support.h"
#include "tests/export_cache/support.h"
#include "tests/support/temp_dir.h"

using namespace rekindle;
using rekindle::testing::contains;
using rekindle::testing::make_entry;
using rekindle::testing::open_cache;
using rekindle::testing::parsed;
using rekindle::testing::rekindle_command;
using rekindle::testing::TempDir;

namespace {

std::string store(const std::string& dir, const std::string& name, const std::string& scale,
                  const std::string& model = "tiny.Tiny") {
  Entry entry = make_entry(name);
  entry.meta = R"({"model":"Tiny","class":")" + model + "\"}";
  entry.leaves = {
      .model = model, .leaves = {{"model.scale", scale}, {"model.training", "True"}}, .parts = {}};
  const auto id = open_cache(dir)->store(digest_of(name), "", entry);
  REQUIRE(id.ok());
  return id->hex();
}

std::string explain(const TempDir& dir, const std::string& arguments) {
  return "cache explain --dir " + dir.path() + " " + arguments;
}

}  // namespace

TEST_CASE("two entries are compared leaf by leaf", "[cli]") {
  const TempDir dir;
  const std::string one = store(dir.path(), "one", "1.0"), two = store(dir.path(), "two", "2.0");
  const auto json = parsed(rekindle_command(explain(dir, one + " " + two + " --json")));
  REQUIRE(json["before"] == one);
  REQUIRE(json["after"] == two);
  REQUIRE(json["equal"] == 1);
  REQUIRE(json["total"] == 2);
  REQUIRE(json["differences"].size() == 1);
  REQUIRE(json["differences"][0] ==
          nlohmann::json({{"path", "model.scale"}, {"before", "1.0"}, {"after", "2.0"}, {"places", 1}}));
  const auto table = rekindle_command(explain(dir, one + " " + two));
  REQUIRE(table.code == 0);
  REQUIRE(contains(table.output,
                   one.substr(0, 12) + " -> " + two.substr(0, 12) + ", 1 of 2 leaves of the key equal\n"));
  REQUIRE(contains(table.output, "  PATH         BEFORE  AFTER\n  model.scale  1.0     2.0\n"));
  REQUIRE(contains(rekindle_command(explain(dir, one + " " + one)).output, "no differences"));
}

TEST_CASE("one entry is compared with its nearest of the same model", "[cli]") {
  const TempDir dir;
  const std::string one = store(dir.path(), "one", "1.0");
  store(dir.path(), "other", "1.0", "other.Tiny");
  const auto alone = rekindle_command(explain(dir, one), "2>&1 </dev/null");
  REQUIRE(alone.code == 1);
  REQUIRE(contains(alone.output, "there is no other entry of tiny.Tiny"));
  const std::string two = store(dir.path(), "two", "2.0");
  const auto json = parsed(rekindle_command(explain(dir, two + " --json")));
  REQUIRE(json["before"] == one);
  REQUIRE(json["after"] == two);
  REQUIRE(json["differences"][0]["path"] == "model.scale");
}

TEST_CASE("an entry without leaves is told from one that is not there", "[cli]") {
  const TempDir dir;
  const auto id = open_cache(dir.path())->store(digest_of("bare"), "", make_entry("bare"));
  const auto bare = rekindle_command(explain(dir, id->hex()), "2>&1 </dev/null");
  REQUIRE(bare.code == 1);
  REQUIRE(contains(bare.output, "has no leaves"));
  REQUIRE(rekindle_command(explain(dir, "ffff0000ffff")).code == 1);
  REQUIRE(rekindle_command(explain(dir, "a b c")).code == 64);
  REQUIRE(rekindle_command(explain(dir, "--last 0")).code == 64);
}

TEST_CASE("the last misses are shown, newest first", "[cli]") {
  const TempDir dir;
  const auto cache = open_cache(dir.path());
  REQUIRE(contains(rekindle_command(explain(dir, "")).output, "no miss is remembered in " + dir.path()));
  Miss miss{.time = 1000,
            .model = "tiny.Tiny",
            .reason = "cold",
            .prekey = digest_of("prekey"),
            .nearest = {},
            .differences = {}};
  cache->record_miss(miss);
  miss.reason = "observations";
  miss.nearest = digest_of("entry");
  miss.equal = 9;
  miss.total = 10;
  miss.differences = {{"global tiny:SCALE", "2.0", "\x1b[31m3.0", 2}};
  cache->record_miss(miss);

  const auto json = parsed(rekindle_command(explain(dir, "--json")));
  REQUIRE(json["dir"] == dir.path());
  REQUIRE(json["misses"].size() == 2);
  REQUIRE(json["misses"][0]["reason"] == "observations");
  REQUIRE(json["misses"][0]["nearest"] == digest_of("entry").hex());
  REQUIRE(json["misses"][0]["differences"][0]["path"] == "global tiny:SCALE");
  REQUIRE(json["misses"][0]["omitted"] == 0);
  REQUIRE(json["misses"][1]["reason"] == "cold");
  REQUIRE(json["misses"][1]["nearest"].is_null());
  REQUIRE(parsed(rekindle_command(explain(dir, "--last 1 --json")))["misses"].size() == 1);

  const auto table = rekindle_command(explain(dir, ""));
  REQUIRE(table.code == 0);
  REQUIRE(contains(table.output,
                   "ago  tiny.Tiny  observations, nearest " + digest_of("entry").hex().substr(0, 12)));
  REQUIRE(contains(table.output, "9 of 10 leaves equal"));
  REQUIRE(contains(table.output, "global tiny:SCALE (and 1 more)"));
  REQUIRE(!contains(table.output, "\x1b"));  // stored text cannot drive the terminal
}
