#include "export_cache/units.h"

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>
#include <utility>

namespace rekindle {
namespace {

struct Quantity {
  double number = 0;
  std::string unit;  // lower case
};

std::optional<Quantity> parse_quantity(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  Quantity quantity;
  const auto [rest, failed] =
      std::from_chars(text.data(), text.data() + text.size(), quantity.number, std::chars_format::fixed);
  if (failed != std::errc() || !std::isfinite(quantity.number) || quantity.number < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  for (const char c : text) quantity.unit += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return quantity;
}

// The factor of "", "b", "k", "kb", "kib", "m", ...
std::optional<double> size_factor(const std::string& unit) {
  if (unit.empty() || unit == "b") return 1;
  const std::size_t power = std::string_view("kmgt").find(unit[0]);
  const std::string rest = unit.substr(1);
  if (power == std::string_view::npos || (rest != "" && rest != "b" && rest != "ib")) return std::nullopt;
  return std::pow(rest == "b" ? 1000.0 : 1024.0, static_cast<double>(power + 1));
}

std::optional<double> duration_factor(const std::string& unit) {
  constexpr std::array<std::pair<std::string_view, double>, 6> kUnits = {
      {{"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}, {"w", 7 * 86400}}};
  for (const auto& [name, factor] : kUnits) {
    if (unit == name) return factor;
  }
  return std::nullopt;
}

constexpr double kLargest = 9.2e18;  // below 2^63

}  // namespace

Result<std::uint64_t> parse_size(std::string_view text) {
  const auto quantity = parse_quantity(text);
  const auto factor = quantity ? size_factor(quantity->unit) : std::nullopt;
  if (!factor || quantity->number * *factor > kLargest) {
    return invalid_argument("'" + std::string(text) + "' is not a size; write it like 500MiB or 5GiB");
  }
  return static_cast<std::uint64_t>(quantity->number * *factor);
}

Result<std::int64_t> parse_duration(std::string_view text) {
  const auto quantity = parse_quantity(text);
  const auto factor = quantity ? duration_factor(quantity->unit) : std::nullopt;
  if (!factor || quantity->number * *factor > kLargest) {
    return invalid_argument("'" + std::string(text) + "' is not a duration; write it like 90s, 12h or 30d");
  }
  return static_cast<std::int64_t>(quantity->number * *factor);
}

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double size = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; size >= 1024 && unit + 1 < kUnits.size(); ++unit) size /= 1024;
  char text[32];
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.1f %s", size, kUnits[unit]);
  return text;
}

}  // namespace rekindle
