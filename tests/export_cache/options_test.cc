#include "export_cache/options.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "export_cache/files/directory.h"
#include "tests/support/golden.h"
#include "tests/support/temp_dir.h"

using namespace rekindle;
using rekindle::testing::TempDir;

namespace {

// Sets the variables that choose the directory, unsets the others, and restores all.
class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& wanted) {
    for (const char* name : {"REKINDLE_CACHE_DIR", "ORTMODULE_CACHE_DIR", "XDG_CACHE_HOME", "HOME"}) {
      const char* old = std::getenv(name);
      saved_[name] = old == nullptr ? std::nullopt : std::optional<std::string>(old);
      unsetenv(name);
    }
    for (const auto& [name, value] : wanted) setenv(name.c_str(), value.c_str(), 1);
  }
  ~Environment() {
    for (const auto& [name, value] : saved_) {
      value ? setenv(name.c_str(), value->c_str(), 1) : unsetenv(name.c_str());
    }
  }

 private:
  std::map<std::string, std::optional<std::string>> saved_;
};

std::string chosen(const std::map<std::string, std::string>& wanted) {
  const Environment environment(wanted);
  return default_cache_dir();
}

}  // namespace

TEST_CASE("the cache directory is the first that is set", "[export_cache]") {
  const TempDir home;
  REQUIRE(chosen({{"REKINDLE_CACHE_DIR", "/a"}, {"ORTMODULE_CACHE_DIR", "/b"}}) == "/a");
  REQUIRE(chosen({{"REKINDLE_CACHE_DIR", ""}, {"ORTMODULE_CACHE_DIR", "/b"}, {"XDG_CACHE_HOME", "/c"}}) ==
          "/b");
  REQUIRE(chosen({{"XDG_CACHE_HOME", "/c"}, {"HOME", home.path()}}) == "/c/rekindle");
  REQUIRE(chosen({{"XDG_CACHE_HOME", "relative"}, {"HOME", home.path()}}) == home / ".cache/rekindle");
  REQUIRE(chosen({{"REKINDLE_CACHE_DIR", "here"}}) == (std::filesystem::current_path() / "here").string());
}

TEST_CASE("the cache directory needs no home", "[export_cache]") {
  const std::string fallback = "/var/tmp/rekindle-" + std::to_string(geteuid());
  REQUIRE(chosen({}) == fallback);
  REQUIRE(chosen({{"HOME", "/nonexistent"}}) == fallback);
  REQUIRE(chosen({{"HOME", "relative"}}) == fallback);
}

TEST_CASE("a cache directory is made private, with its parents", "[export_cache]") {
  const TempDir temp;
  const std::string dir = temp / "a/b/c";
  REQUIRE(prepare_directory({.dir = dir, .mode = CacheMode::kReadOnly}).ok());
  REQUIRE(!std::filesystem::exists(dir));
  REQUIRE(prepare_directory({.dir = dir, .mode = CacheMode::kReadWrite}).ok());
  struct stat info;
  REQUIRE(stat(dir.c_str(), &info) == 0);
  REQUIRE((info.st_mode & 0777) == 0700);
}

TEST_CASE("a directory that cannot be trusted or made is refused with the remedy", "[export_cache]") {
  const TempDir temp;
  REQUIRE(chmod(temp.path().c_str(), 0777) == 0);
  const auto open_to_all = prepare_directory({.dir = temp.path()});
  REQUIRE(!open_to_all.ok());
  REQUIRE(open_to_all.error().code == ErrorCode::kInvalidArgument);
  REQUIRE(open_to_all.error().message.find("chmod 700") != std::string::npos);
  REQUIRE(chmod(temp.path().c_str(), 0700) == 0);

  testing::write_file(temp / "file", "x");
  REQUIRE(prepare_directory({.dir = temp / "file", .mode = CacheMode::kReadWrite}).error().code ==
          ErrorCode::kInvalidArgument);
  REQUIRE(prepare_directory({.dir = temp / "file/below", .mode = CacheMode::kReadWrite}).error().code ==
          ErrorCode::kIo);
  REQUIRE(prepare_directory({.dir = "/proc/nowhere", .mode = CacheMode::kReadWrite}).error().code ==
          ErrorCode::kIo);
  REQUIRE(prepare_directory({.dir = "", .mode = CacheMode::kReadWrite}).error().code ==
          ErrorCode::kInvalidArgument);
}
