// `rekindle exec`: a program gets the settings as variables, and its exit status is the command's.
#include <catch2/catch.hpp>
#include <fstream>
#include <string>

#include "tests/cli/support.h"
#include "tests/support/temp_dir.h"

namespace rekindle::testing {
namespace {

Outcome exec(const std::string& words) { return rekindle_command("exec " + words, "2>&1 </dev/null"); }

}  // namespace

TEST_CASE("a program finds what the options say in its environment", "[cli]") {
  CHECK(exec("--memory sh -c 'echo $REKINDLE_PRINT_MEMORY'").output == "2\n");
  CHECK(exec("--memory --at 1,100 sh -c 'echo $REKINDLE_PRINT_MEMORY'").output == "1,100\n");
  const std::string printed = "sh -c 'echo $REKINDLE_MEMORY_BUDGET $REKINDLE_START $REKINDLE_CACHE_DIR'";
  CHECK(exec("--budget 50% --start background --dir /d " + printed).output == "50% background /d\n");
  CHECK(exec("--fallback error --log off --cache readonly sh -c "
             "'echo $REKINDLE_FALLBACK $REKINDLE_LOG $REKINDLE_CACHE'")
            .output == "error off readonly\n");
  CHECK(exec("--level 2 sh -c 'echo $REKINDLE_MEMORY_LEVEL'").output == "2\n");
  CHECK(exec("--plan /dev/null sh -c 'echo $REKINDLE_MEMORY_PLAN'").output == "/dev/null\n");
  CHECK(exec("--cache verify:1/100 sh -c 'echo $REKINDLE_CACHE'").output == "verify:1/100\n");
  CHECK(exec("sh -c 'echo ${REKINDLE_PRINT_MEMORY-none}'").output == "none\n");
}

TEST_CASE("a value that no program would take is a wrong command line that names it", "[cli]") {
  for (const char* words :
       {"--level 3", "--budget 2.0", "--budget 0", "--budget 101%", "--budget none", "--at 1,x", "--at 0",
        "--at 1,", "--plan /no/such/file", "--cache of", "--cache verify:1/0"}) {
    const Outcome refused = exec(words + std::string(" true"));
    CAPTURE(words, refused.output);
    CHECK(refused.code == 64);
    const std::string line(words);
    CHECK(contains(refused.output, line.substr(line.find(' ') + 1)));
  }
  for (const char* words : {"--budget 2GiB", "--budget 0.5", "--budget 1", "--budget 2000000000", "--at 3"})
    CHECK(exec(words + std::string(" true")).code == 0);
}

TEST_CASE("two dashes may end the options", "[cli]") {
  CHECK(exec("-- echo a --b -c -- d").output == "a --b -c -- d\n");
  CHECK(exec("--log info --memory -- sh -c 'echo $REKINDLE_LOG \"$@\"' x -- --log").output ==
        "info -- --log\n");
  CHECK(exec("--log=info -- echo --").output == "--\n");
  CHECK(exec("--").code == 64);
}

TEST_CASE("what follows the program is its own", "[cli]") {
  CHECK(exec("echo --memory --help -- cache ls").output == "--memory --help -- cache ls\n");
  CHECK(exec("sh -c 'exit 7'").code == 7);
}

TEST_CASE("a file of Python's is run by the python on PATH", "[cli]") {
  const TempDir dir;
  std::ofstream(dir / "python") << "#!/bin/sh\necho python \"$@\"\n";
  std::ofstream(dir / "train.py") << "";
  REQUIRE(exec("chmod +x " + (dir / "python")).code == 0);
  const std::string path = "PATH=" + dir.path() + ":$PATH";
  CHECK(rekindle_command("exec train.py --epochs 3", "2>&1 </dev/null", path).output ==
        "python train.py --epochs 3\n");
}

TEST_CASE("a program that is not there, or no program, is said", "[cli]") {
  const Outcome absent = exec("no-such-program --x");
  CHECK(absent.code == 127);
  CHECK(absent.output == "rekindle: no-such-program cannot be run: No such file or directory\n");
  CHECK(exec("/").code == 126);
  CHECK(exec("").code == 64);
  const Outcome misspelt = exec("--memry train.py");
  CHECK(misspelt.code == 64);
  CHECK(contains(misspelt.output, "has no option --memry"));
}

}  // namespace rekindle::testing
