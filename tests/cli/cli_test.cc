// Runs the built `rekindle` program and checks what scripts rely on: exit codes and JSON.
#include <catch2/catch.hpp>
#include <string>

#include "export_cache/export_cache.h"
#include "export_cache/key.h"
#include "tests/cli/support.h"
#include "tests/support/golden.h"
#include "tests/support/temp_dir.h"

using namespace rekindle;
using rekindle::testing::contains;
using rekindle::testing::Outcome;
using rekindle::testing::parsed;
using rekindle::testing::rekindle_command;
using rekindle::testing::TempDir;

namespace {

// A cache with one entry that was used once; returns its id.
std::string fill(const std::string& dir) {
  auto cache = ExportCache::open({.dir = dir});
  REQUIRE(cache.ok());
  KeyBuilder key;
  key.add("mode", "train");
  Entry entry;
  entry.sections["exported"] = "onnx";
  entry.leaves = {.model = "tiny.Tiny", .leaves = {{"model.training", "True"}}, .parts = {}};
  entry.meta = R"({"model":"Tiny\u001b[31m","mode":"train","inputs":"x[2,128]","export_seconds":1.5})";
  const auto id = (*cache)->store(key.digest(), "", entry);
  REQUIRE(id.ok());
  REQUIRE((*cache)->lookup(key.digest())->size() == 1);
  (*cache)->record_hit(*id, 12.5);
  return id->hex();
}

}  // namespace

TEST_CASE("the program names its version and needs a command", "[cli]") {
  REQUIRE(rekindle_command("--version").output == "rekindle " REKINDLE_VERSION "\n");
  REQUIRE(rekindle_command("--help").code == 0);
  REQUIRE(rekindle_command("").code == 64);
  REQUIRE(rekindle_command("cache").code == 64);
  REQUIRE(rekindle_command("cache frobnicate").code == 64);
  REQUIRE(rekindle_command("cache ls --bogus").code == 64);
  REQUIRE(rekindle_command("cache inspect").code == 64);
}

TEST_CASE("every command has a help page", "[cli]") {
  for (const std::string noun : {"cache", "completion", "diff"}) {
    for (const std::string& verb : rekindle::testing::words("completion words -- " + noun + " ''")) {
      const Outcome help = rekindle_command(noun + " " + verb + " --help");
      REQUIRE(help.code == 0);
      REQUIRE(contains(help.output, "Examples\n  rekindle " + noun + " " + verb));
      REQUIRE(contains(help.output, "Exit status: 0"));
    }
  }
}

TEST_CASE("every noun has a summary", "[cli]") {
  const Outcome help = rekindle_command("--help");
  for (const std::string& noun : rekindle::testing::words("completion words -- ''")) {
    const std::size_t line = help.output.find("\n  " + noun + " ");
    INFO(noun);
    REQUIRE(line != std::string::npos);
    const std::size_t summary = help.output.find_first_not_of(' ', line + noun.size() + 3);
    REQUIRE(help.output.at(summary) != '\n');
  }
}

TEST_CASE("a missing directory is one clear message", "[cli]") {
  const TempDir dir;
  for (const char* command : {"ls", "inspect 00", "stats", "clear --yes"}) {
    const Outcome outcome =
        rekindle_command("cache " + std::string(command) + " --dir " + dir / "none", "2>&1 </dev/null");
    REQUIRE(outcome.code == 1);
    REQUIRE(contains(outcome.output, "there is no cache at " + dir / "none"));
    REQUIRE(contains(outcome.output, "REKINDLE_CACHE_DIR"));
  }
  REQUIRE(!std::filesystem::exists(dir / "none"));
}

TEST_CASE("ls shows the entries", "[cli]") {
  const TempDir dir;
  const std::string id = fill(dir.path());
  const auto json = parsed(rekindle_command("cache ls --json --dir " + dir.path()));
  REQUIRE(json["dir"] == dir.path());
  REQUIRE(json["entries"].size() == 1);
  REQUIRE(json["entries"][0]["id"] == id);
  REQUIRE(json["entries"][0]["hits"] == 1);
  REQUIRE(json["entries"][0]["meta"]["inputs"] == "x[2,128]");

  const Outcome table = rekindle_command("cache ls --dir " + dir.path());
  REQUIRE(table.code == 0);
  REQUIRE(table.output.starts_with("ID            MODEL"));
  for (const std::string& part :
       {id.substr(0, 12), std::string("train"), std::string("x[2,128]"), std::string("12.5 s")}) {
    REQUIRE(contains(table.output, part));
  }
  REQUIRE(!contains(table.output, "\x1b"));  // stored text cannot drive the terminal
}

TEST_CASE("inspect takes the start of an id and shows the key fields", "[cli]") {
  const TempDir dir;
  const std::string id = fill(dir.path());
  const auto json =
      parsed(rekindle_command("cache inspect " + id.substr(0, 6) + " --json --dir " + dir.path()));
  REQUIRE(json["id"] == id);
  REQUIRE(json["sections"]["exported"] == 4);
  REQUIRE(json["fields"][0]["name"] == "model.training");
  REQUIRE(json["fields"][0]["value"] == "True");
  const Outcome page = rekindle_command("cache inspect " + id + " --dir " + dir.path());
  REQUIRE(contains(page.output, "section exported"));
  REQUIRE(contains(page.output, "key fields and observations\n  model.training  True"));
  REQUIRE(rekindle_command("cache inspect ffff0000ffff --dir " + dir.path()).code == 1);
  REQUIRE(rekindle_command("cache inspect nothex --dir " + dir.path()).code == 1);
}

TEST_CASE("stats shows the counters", "[cli]") {
  const TempDir dir;
  fill(dir.path());
  const auto json = parsed(rekindle_command("cache stats --json --dir " + dir.path()));
  REQUIRE(json["lookups"] == 1);
  REQUIRE(json["hits"] == 1);
  REQUIRE(json["misses"] == 0);
  REQUIRE(json["stores"] == 1);
  REQUIRE(json["entries"] == 1);
  REQUIRE(json["seconds_saved"] == 12.5);
  const Outcome table = rekindle_command("cache stats --dir " + dir.path());
  REQUIRE(contains(table.output, "hits       1, saved 12.5 s"));
}

TEST_CASE("clear asks unless told", "[cli]") {
  const TempDir dir;
  fill(dir.path());
  REQUIRE(rekindle_command("cache clear --dir " + dir.path()).code == 1);
  testing::write_file(dir / "answer", "n\n");
  const Outcome no = rekindle_command("cache clear --dir " + dir.path(), "2>&1 < " + dir / "answer");
  REQUIRE(no.code == 1);
  REQUIRE(contains(no.output, "Remove 1 entries"));
  REQUIRE(parsed(rekindle_command("cache stats --json --dir " + dir.path()))["entries"] == 1);
  REQUIRE(parsed(rekindle_command("cache clear --yes --json --dir " + dir.path()))["removed_entries"] == 1);
  const auto json = parsed(rekindle_command("cache stats --json --dir " + dir.path()));
  REQUIRE(json["entries"] == 0);
  REQUIRE(json["stores"] == 0);
}
