#include "export_cache/files/format.h"

#include <charconv>
#include <filesystem>
#include <optional>

#include "export_cache/files/files.h"

namespace rekindle {
namespace {

constexpr std::string_view kPrefix = "rekindle cache format ";
constexpr std::uint64_t kMostFormatBytes = 4096;

// std::nullopt for text that no version has written.
std::optional<int> parse_format(std::string_view text) {
  if (!text.starts_with(kPrefix)) return std::nullopt;
  text.remove_prefix(kPrefix.size());
  int version = 0;
  const auto [rest, failed] = std::from_chars(text.data(), text.data() + text.size(), version);
  if (failed != std::errc() || version < 1 || rest == text.data() + text.size() || *rest != '\n') {
    return std::nullopt;
  }
  return version;
}

Error another_format(const std::string& dir, const std::string& found, bool newer) {
  return unsupported("the cache in " + dir + " has format " + found + ", this Rekindle uses format " +
                     std::to_string(kCacheFormat) +
                     "; it is left as it is: " + (newer ? "upgrade Rekindle, or " : "delete it, or ") +
                     "choose another directory with REKINDLE_CACHE_DIR");
}

// As of format 1; beside entries of their own the file of the format was lost, and is written again.
bool has_only_a_database(const std::string& dir) {
  std::error_code unreadable;
  return std::filesystem::exists(dir + "/db", unreadable) &&
         !std::filesystem::exists(dir + "/objects", unreadable);
}

}  // namespace

Status check_format(const std::string& dir, bool writable) {
  const std::string path = dir + "/format";
  REKINDLE_ASSIGN_OR_RETURN(std::optional<std::string> text, read_file(path, kMostFormatBytes));
  if (!text && has_only_a_database(dir)) {
    // A process that began meanwhile made the database, after its file of the format.
    REKINDLE_ASSIGN_OR_RETURN(text, read_file(path, kMostFormatBytes));
    if (!text) return another_format(dir, "1", false);
  }
  if (text) {
    const auto version = parse_format(*text);
    if (!version) return another_format(dir, "that is not known (" + path + ")", false);
    if (*version == kCacheFormat) return {};
    return another_format(dir, std::to_string(*version), *version > kCacheFormat);
  }
  if (!writable) return {};
  REKINDLE_ASSIGN_OR_RETURN(NewFile file, NewFile::create(path, 0600));
  REKINDLE_RETURN_IF_ERROR(file.write(std::string(kPrefix) + std::to_string(kCacheFormat) + "\n"));
  return file.publish_unsynced();
}

}  // namespace rekindle
