// The commands that change a cache, and verify: exit codes, JSON, and what is left afterwards.
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "tests/cli/support.h"
#include "tests/export_cache/support.h"
#include "tests/support/golden.h"
#include "tests/support/temp_dir.h"

using namespace rekindle;
using rekindle::testing::contains;
using rekindle::testing::make_entry;
using rekindle::testing::Outcome;
using rekindle::testing::parsed;
using rekindle::testing::rekindle_command;
using rekindle::testing::TempDir;

namespace {

std::string store(const std::string& dir, const std::string& name, const std::string& torch = "2.11.0") {
  Entry entry = make_entry(name, 5000);
  entry.meta = R"({"model":"Tiny","mode":"train","torch":")" + torch + "\"}";
  const auto id = testing::open_cache(dir)->store(digest_of(name), "", entry);
  REQUIRE(id.ok());
  return id->hex();
}

// The command, run so many seconds from now.
Outcome later(long seconds, const std::string& arguments) {
  const std::string clock =
      "LD_PRELOAD=" REKINDLE_SHIFTED_CLOCK " REKINDLE_TEST_CLOCK=" + std::to_string(seconds);
  return rekindle_command(arguments, "2>&1 </dev/null", clock);
}

std::size_t entries_in(const std::string& dir) {
  return parsed(rekindle_command("cache ls --json --dir " + dir))["entries"].size();
}

constexpr long kDay = 86400;

}  // namespace

TEST_CASE("a pinned entry outlives a prune until it is unpinned", "[cli]") {
  const TempDir dir;
  const std::string kept = store(dir.path(), "kept"), other = store(dir.path(), "other");
  const std::string at = " --json --dir " + dir.path();
  REQUIRE(parsed(rekindle_command("cache pin " + kept.substr(0, 8) + at))["pinned"][0] == kept);
  REQUIRE(parsed(rekindle_command("cache stats" + at))["pinned"] == 1);
  REQUIRE(contains(rekindle_command("cache ls --dir " + dir.path()).output, kept.substr(0, 12) + "*"));
  const auto report = parsed(later(40 * kDay, "cache prune --older-than 30d" + at));
  REQUIRE(report["removed"].size() == 1);
  REQUIRE(report["removed"][0]["id"] == other);
  REQUIRE(report["spared"][0]["why"] == "pinned");
  REQUIRE(parsed(rekindle_command("cache unpin " + kept + at))["unpinned"][0] == kept);
  REQUIRE(parsed(later(40 * kDay, "cache prune --older-than 30d" + at))["removed"].size() == 1);
  REQUIRE(entries_in(dir.path()) == 0);
  REQUIRE(rekindle_command("cache pin " + kept + at).code == 1);
  REQUIRE(parsed(rekindle_command("cache stats" + at))["removals"] == 2);
}

TEST_CASE("a dry run says what a prune removes, and removes nothing", "[cli]") {
  const TempDir dir;
  store(dir.path(), "one");
  store(dir.path(), "two");
  const std::string at = " --json --dir " + dir.path();
  const auto planned = parsed(later(kDay, "cache prune --max-size 1 --dry-run" + at));
  REQUIRE(planned["removed"].size() == 2);
  REQUIRE(planned["bytes_after"] == 0);
  REQUIRE(entries_in(dir.path()) == 2);
  const auto done = parsed(later(kDay, "cache prune --max-size 1" + at));
  REQUIRE(done["removed"] == planned["removed"]);
  REQUIRE(entries_in(dir.path()) == 0);
}

TEST_CASE("prune takes what other versions of torch made, and spares what is in use", "[cli]") {
  const TempDir dir;
  const std::string old = store(dir.path(), "old", "2.10.0"), current = store(dir.path(), "current");
  const std::string prune = "cache prune --not-current-torch --json --dir " + dir.path();
  const auto now = parsed(rekindle_command(prune));
  REQUIRE(now["removed"].empty());
  REQUIRE(now["spared"][0]["why"] == "in use");
  // Both were stored in the same second or the next; the newest one decides unless a version is given.
  const auto report =
      parsed(later(kDay, "cache prune --not-current-torch 2.11.0 --json --dir " + dir.path()));
  REQUIRE(report["removed"].size() == 1);
  REQUIRE(report["removed"][0]["id"] == old);
  REQUIRE(entries_in(dir.path()) == 1);
}

TEST_CASE("a prune that says nothing, or nonsense, is a wrong command line", "[cli]") {
  const TempDir dir;
  const std::string at = " --dir " + dir.path();
  for (const char* flags : {"", "--older-than 3x", "--max-size lots", "--keep-last -1", "--dry-run"}) {
    REQUIRE(rekindle_command("cache prune " + std::string(flags) + at).code == 64);
  }
}

TEST_CASE("an empty value, as of a variable that is not set, is a wrong command line", "[cli]") {
  const TempDir dir;
  testing::open_cache(dir.path());
  const std::string environment = "REKINDLE_CACHE_DIR=" + dir.path();
  for (const char* words :
       {"clear --yes --dir ''", "prune --older-than 0s --keep-last ''", "prune --older-than 0s --model ''",
        "prune --max-size ''", "verify --sample ''"}) {
    const auto outcome = rekindle_command(std::string("cache ") + words, "2>&1 </dev/null", environment);
    INFO(words << ": " << outcome.output);
    REQUIRE(outcome.code == 64);
    REQUIRE(contains(outcome.output, "empty"));
  }
}

TEST_CASE("a bundle carries entries to a cache that does not exist yet", "[cli]") {
  const TempDir dir;
  const std::string one = store(dir / "a", "one");
  store(dir / "a", "two");
  const std::string bundle = dir / "entries.bundle";
  REQUIRE(parsed(rekindle_command("cache pack -o " + bundle + " --json --dir " + dir / "a"))["entries"] == 2);
  const std::string unpack = "cache unpack " + bundle + " --json --dir " + dir / "b";
  REQUIRE(parsed(rekindle_command(unpack))["added"] == 2);
  REQUIRE(parsed(rekindle_command(unpack))["known"] == 2);
  auto cache = testing::open_cache(dir / "b");
  const auto candidates = cache->lookup(digest_of("one"));
  REQUIRE(candidates->size() == 1);
  REQUIRE(candidates->at(0).entry.hex() == one);
  REQUIRE(cache->load(candidates->at(0).entry)->has_value());

  REQUIRE(parsed(rekindle_command("cache pack " + one.substr(0, 6) + " -o " + bundle + " --json --dir " +
                                  dir / "a"))["entries"] == 1);
  std::string bytes = testing::read_file(bundle);
  bytes[bytes.size() / 2] ^= 1;
  testing::write_file(bundle, bytes);
  REQUIRE(rekindle_command("cache unpack " + bundle + " --dir " + dir / "c").code == 1);
  REQUIRE(entries_in(dir / "c") == 0);
  REQUIRE(rekindle_command("cache unpack " + dir / "none" + " --dir " + dir / "c").code == 1);
  REQUIRE(rekindle_command("cache pack -o " + dir / "no/such/place" + " --dir " + dir / "a").code == 1);
}

TEST_CASE("a bundle is written to where a link leads, and takes the place of no device or pipe", "[cli]") {
  namespace fs = std::filesystem;
  const TempDir dir;
  store(dir / "a", "one");
  const std::string pack = "cache pack --dir " + dir / "a" + " -o ";
  testing::write_file(dir / "file", "before");
  fs::create_symlink("file", dir / "link");
  REQUIRE(rekindle_command(pack + dir / "link").code == 0);
  REQUIRE(fs::is_symlink(dir / "link"));
  REQUIRE(testing::read_file(dir / "file").size() > 100);
  fs::create_symlink("loop", dir / "loop");
  REQUIRE(rekindle_command(pack + dir / "loop").code == 1);
  REQUIRE(mkfifo((dir / "pipe").c_str(), 0600) == 0);
  const testing::Outcome refused = rekindle_command(pack + dir / "pipe", "2>&1 </dev/null");
  REQUIRE(refused.code == 1);
  REQUIRE(contains(refused.output, "is no regular file"));
  REQUIRE(fs::is_fifo(dir / "pipe"));
}

TEST_CASE("output that cannot be written is an error", "[cli]") {
  const TempDir dir;
  store(dir / "a", "one");
  for (const std::string& command :
       {"cache ls --dir " + dir / "a", "cache stats --json --dir " + dir / "a",
        std::string("completion bash"), std::string("--version"), std::string("--help")}) {
    CAPTURE(command);
    REQUIRE(rekindle_command(command, "2>/dev/null </dev/null >/dev/full").code == 1);
  }
}

TEST_CASE("verify is clean, finds damage, repairs it, and says so by its exit code", "[cli]") {
  const TempDir dir;
  store(dir.path(), "one");
  const std::string at = " --dir " + dir.path();
  for (const char* flags : {"", "--quick", "--sample 50%", "--repair"}) {
    REQUIRE(rekindle_command("cache verify " + std::string(flags) + at).code == 0);
  }
  // Its bytes are sound, but "exported" is no ONNX model.
  REQUIRE(rekindle_command("cache verify --deep" + at).code == 2);
  REQUIRE(rekindle_command("cache verify --deep --repair" + at).code == 1);
  REQUIRE(rekindle_command("cache verify --deep" + at).code == 0);
  REQUIRE(entries_in(dir.path()) == 0);
  REQUIRE(rekindle_command("cache verify --quick --deep" + at).code == 64);
  REQUIRE(rekindle_command("cache verify --sample 0%" + at).code == 64);
  REQUIRE(rekindle_command("cache verify --dir " + dir / "none").code == 3);
}

TEST_CASE("a directory in the place of an entry is damage like any other", "[cli]") {
  const TempDir dir;
  const std::string id = store(dir.path(), "one"), object = dir / ("objects/" + id);
  std::filesystem::remove(object);
  std::filesystem::create_directories(object + "/inside");
  const std::string verify = "cache verify --dir " + dir.path();
  REQUIRE(rekindle_command(verify).code == 2);
  REQUIRE(store(dir.path(), "one") == id);
  REQUIRE(rekindle_command(verify).code == 0);
  std::filesystem::remove(object);
  std::filesystem::create_directories(object + "/inside");
  REQUIRE(rekindle_command(verify + " --repair").code == 1);
  REQUIRE(rekindle_command(verify).code == 0);
}

TEST_CASE("verify does not take a database that cannot be read for an empty one", "[cli]") {
  const TempDir dir;
  store(dir.path(), "one");
  testing::write_file(dir / "db/CURRENT", "nonsense");
  const std::string verify = "cache verify --json --dir " + dir.path();
  const Outcome found = rekindle_command(verify);
  REQUIRE(found.code == 2);
  REQUIRE(nlohmann::json::parse(found.output)["problems"][0]["kind"] == "damaged database");
  REQUIRE(rekindle_command(verify).code == 2);
  REQUIRE(rekindle_command(verify + " --repair").code == 1);
  REQUIRE(rekindle_command(verify).code == 0);
  store(dir.path(), "two");
  std::filesystem::remove(dir / "db/CURRENT");
  REQUIRE(rekindle_command(verify).code == 2);
}

TEST_CASE("extract writes a section's bytes, to a file or to stdout", "[cli]") {
  const TempDir dir;
  const std::string id = store(dir.path(), "one");
  const std::string extract = "cache extract " + id.substr(0, 5) + " --dir " + dir.path();
  const std::string bytes = make_entry("one", 5000).sections["exported"];
  REQUIRE(rekindle_command(extract + " -o " + dir / "m.onnx").code == 0);
  REQUIRE(testing::read_file(dir / "m.onnx") == bytes);
  REQUIRE(rekindle_command(extract + " -o -").output == bytes);
  REQUIRE(rekindle_command(extract + " --json -o -").code == 1);
  REQUIRE(rekindle_command(extract + " -o " + dir / "no/such/place").code == 1);
  const Outcome joint = rekindle_command(extract + " --joint -o -", "2>&1 </dev/null");
  REQUIRE(joint.code == 1);
  REQUIRE(contains(joint.output, "has no section 'joint'; it has: contract, exported"));
}
