#include "cli/table.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

namespace rekindle::cli {
namespace {

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Characters, not bytes: names may be UTF-8.
std::size_t width(const std::string& text) {
  return text.size() - static_cast<std::size_t>(std::ranges::count_if(text, continues));
}

}  // namespace

std::string short_id(const Digest& id) { return id.hex().substr(0, kIdDigits); }

std::string printable(const std::string& text, std::size_t most) {
  std::string safe = text;
  std::ranges::replace_if(
      safe, [](unsigned char c) { return c < 0x20 || c == 0x7F; }, '?');
  if (safe.size() <= most) return safe;
  std::size_t end = most - 3;
  while (end > 0 && continues(safe[end])) --end;
  return safe.substr(0, end) + "...";
}

void print_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  }
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += printable(row[i], row[i].size());
      if (i + 1 < row.size()) line.append(widths[i] - width(row[i]) + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    std::puts(line.c_str());
  }
}

std::string size_text(std::uint64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes);
  const char* unit = "B";
  for (const char* next : {"kB", "MB", "GB", "TB"}) {
    if (value < 1000) break;
    value /= 1000;
    unit = next;
  }
  return fmt::format("{:.1f} {}", value, unit);
}

std::string seconds_text(double seconds) { return fmt::format("{:.1f} s", seconds); }

std::string age_text(std::int64_t then, std::int64_t now) {
  if (then == 0) return "-";
  const std::int64_t seconds = std::max<std::int64_t>(0, now - then);
  if (seconds < 120) return fmt::format("{} s", seconds);
  if (seconds < 2 * 3600) return fmt::format("{} min", seconds / 60);
  if (seconds < 2 * 86400) return fmt::format("{} h", seconds / 3600);
  return fmt::format("{} d", seconds / 86400);
}

}  // namespace rekindle::cli
