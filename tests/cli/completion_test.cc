// What shells are offered, and that the scripts ask for it.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/cli/support.h"
#include "tests/export_cache/support.h"
#include "tests/support/temp_dir.h"

using namespace rekindle;
using rekindle::testing::contains;
using rekindle::testing::rekindle_command;
using rekindle::testing::TempDir;
using Words = std::vector<std::string>;

namespace {

Words completed(const std::string& line) { return testing::words("completion words -- " + line); }

}  // namespace

TEST_CASE("nouns, verbs and flags are completed", "[cli]") {
  REQUIRE(completed("''") == Words{"cache", "completion", "diff", "exec", "profile"});
  REQUIRE(completed("diff ''") == Words{"merge"});
  REQUIRE(completed("profile ''") == Words{"merge"});
  REQUIRE(completed("diff --t") == Words{"--tolerance"});
  REQUIRE(completed("cache in") == Words{"inspect"});
  REQUIRE(completed("completion ''") == Words{"bash", "zsh"});
  REQUIRE(completed("cache ls --j") == Words{"--json"});
  REQUIRE(completed("cache ls --sort ''") == Words{"age", "saved", "size"});
  REQUIRE(completed("cache ls --sort size --m") == Words{"--model"});
  REQUIRE(completed("cache ls --dir ''").empty());  // files are the shell's business
  REQUIRE(completed("cache frobnicate --xyz '' ''").size() > 3);
  REQUIRE(rekindle_command("completion words").code == 0);
}

TEST_CASE("entry ids are completed from the directory on the line", "[cli]") {
  const TempDir dir;
  const auto id = testing::open_cache(dir.path())->store(digest_of("prekey"), "", testing::make_entry("one"));
  REQUIRE(id.ok());
  const std::string hex = id->hex();
  REQUIRE(completed("cache inspect --dir " + dir.path() + " ''") == Words{hex.substr(0, 12)});
  REQUIRE(completed("cache inspect --dir=" + dir.path() + " " + hex.substr(0, 3)) ==
          Words{hex.substr(0, 12)});
  REQUIRE(completed("cache inspect --dir " + dir.path() + " " + hex.substr(0, 20)) == Words{hex});
  REQUIRE(completed("cache inspect --dir " + dir.path() + " xx").empty());
  REQUIRE(completed("cache inspect --dir " + dir / "none" + " ''").empty());
  REQUIRE(completed("cache stats --dir " + dir.path() + " ''").empty());
}

TEST_CASE("bash completes through the script", "[cli]") {
  const std::string program = REKINDLE_PROGRAM;
  const std::string line =
      "bash -c 'source <(" + program + " completion bash); COMP_WORDS=(" + program +
      " cache ls --so); COMP_CWORD=3; _rekindle; echo \"${COMPREPLY[@]}\"; complete -p rekindle'";
  FILE* pipe = popen(line.c_str(), "r");
  REQUIRE(pipe != nullptr);
  char buffer[4096] = {};
  const std::size_t got = fread(buffer, 1, sizeof(buffer) - 1, pipe);
  REQUIRE(pclose(pipe) == 0);
  REQUIRE(std::string(buffer, got) == "--sort\ncomplete -o default -F _rekindle rekindle\n");
}
