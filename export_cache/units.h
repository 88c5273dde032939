// Sizes and durations as people write them, in options, variables and on the command line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/result.h"

namespace rekindle {

// Bytes of "5GiB", "500 MB", "1.5T", "4096": K, M, G and T are powers of 1024 with or without "iB", of 1000
// with "B". kInvalidArgument for anything else, negative or above 2^63.
Result<std::uint64_t> parse_size(std::string_view text);

// Seconds of "90", "90s", "15m", "12h", "30d", "2w". kInvalidArgument for anything else or negative.
Result<std::int64_t> parse_duration(std::string_view text);

// "1.5 GiB".
std::string bytes_text(std::uint64_t bytes);

}  // namespace rekindle
