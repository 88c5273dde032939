// Text for people: aligned tables, and short forms of sizes, durations and ages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/base/digest.h"

namespace rekindle::cli {

// Left-aligned columns, two spaces apart; the first row is the heading. Control characters, which stored text
// may hold, are printed as '?'.
void print_table(const std::vector<std::vector<std::string>>& rows);

// The start of an id that tables show; every command accepts it.
inline constexpr std::size_t kIdDigits = 12;
std::string short_id(const Digest& id);

std::string printable(const std::string& text, std::size_t most);  // cut to `most` bytes, at a character
std::string size_text(std::uint64_t bytes);                        // "1.8 MB"
std::string seconds_text(double seconds);                          // "12.6 s"
std::string age_text(std::int64_t then, std::int64_t now);         // "2 h", unix seconds; "-" for 0

}  // namespace rekindle::cli
