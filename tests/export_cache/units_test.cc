#include "export_cache/units.h"

#include <catch2/catch.hpp>
#include <cstdlib>

#include "export_cache/options.h"
#include "src/base/log.h"

using namespace rekindle;

TEST_CASE("sizes and durations are read as people write them", "[export_cache]") {
  REQUIRE(*parse_size("4096") == 4096);
  REQUIRE(*parse_size("5GiB") == std::uint64_t{5} << 30);
  REQUIRE(*parse_size(" 1.5 gb ") == 1'500'000'000);
  REQUIRE(*parse_size("2k") == 2048);
  REQUIRE(*parse_size("0") == 0);
  for (const char* wrong : {"", "GiB", "5X", "-1", "5 GiBs", "1e9", "nan", "99999999999T"}) {
    INFO(wrong);
    REQUIRE(parse_size(wrong).error().code == ErrorCode::kInvalidArgument);
  }
  REQUIRE(*parse_duration("90") == 90);
  REQUIRE(*parse_duration("1.5h") == 5400);
  REQUIRE(*parse_duration("2w") == 14 * 86400);
  REQUIRE(!parse_duration("soon").ok());
  REQUIRE(bytes_text(512) == "512 B");
  REQUIRE(bytes_text(std::uint64_t{5} << 30) == "5.0 GiB");
}

TEST_CASE("the size limit comes from the environment when that is a size", "[export_cache]") {
  set_log_level(LogLevel::kOff);
  REQUIRE(default_size_limit() == kDefaultSizeLimit);
  setenv("REKINDLE_CACHE_SIZE", "1MiB", 1);
  REQUIRE(default_size_limit() == 1 << 20);
  setenv("REKINDLE_CACHE_SIZE", "much", 1);
  REQUIRE(default_size_limit() == kDefaultSizeLimit);
  unsetenv("REKINDLE_CACHE_SIZE");
  set_log_level(LogLevel::kInfo);
}
