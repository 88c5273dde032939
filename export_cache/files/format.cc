#include "export_cache/files/format.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>

#include "export_cache/files/files.h"
#include "src/base/digest.h"
#include "src/base/log.h"

namespace rekindle {
namespace {

constexpr std::string_view kPrefix = "rekindle cache format ";
constexpr std::uint64_t kMostFormatBytes = 4096;
// What it has there for a while.
constexpr std::string_view kPrefixes[] = {kTemporaryPrefix, "quarantine-"};

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
                     std::to_string(kCacheFormat) + "; it is left as it is: " +
                     (newer ? "upgrade Rekindle, or " : "delete " + dir + ", or ") +
                     "choose another directory with REKINDLE_CACHE_DIR");
}

// What lies in a directory that has no sound file of the format.
struct Contents {
  std::string own, foreign;  // one name each of what a cache has and of what none has; empty: there is none
};

Contents contents_of(const std::string& dir) {
  namespace fs = std::filesystem;
  Contents found;
  std::error_code unreadable;
  for (fs::directory_iterator it(dir, unreadable), end; !unreadable && it != end; it.increment(unreadable)) {
    const std::string name = it->path().filename().string();
    const bool prefixed =
        std::ranges::any_of(kPrefixes, [&](std::string_view prefix) { return name.starts_with(prefix); });
    (prefixed || std::ranges::count(kCacheNames, name) > 0 ? found.own : found.foreign) = name;
  }
  const std::string objects = dir + "/objects";
  for (fs::directory_iterator it(objects, unreadable), end; !unreadable && it != end;
       it.increment(unreadable)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(kTemporaryPrefix) && !Digest::from_hex(name).ok())
      found.foreign = "objects/" + name;
  }
  return found;
}

// As of format 1, a whole one. Beside anything else of a cache, or where the database is in parts, as of a
// directory that was removed under a process, the file of the format was lost, and is written again.
bool has_only_a_database(const std::string& dir) {
  const auto is_there = [&](std::string_view name) {
    std::error_code unreadable;
    return std::filesystem::exists(dir + "/" + std::string(name), unreadable);
  };
  return is_there("db/CURRENT") && std::ranges::none_of(kCacheNames, [&](std::string_view name) {
           return name != "db" && name != "rekindle.lock" && is_there(name);
         });
}

// Whoever clears or repairs a cache deletes what has its names.
Error not_a_cache(const std::string& dir, const Contents& found, bool has_format) {
  return unsupported(dir + " is not taken for a cache: it has " + found.own + " beside " + found.foreign +
                     (has_format ? " and its file format is none of a cache's" : " and no file format") +
                     "; choose an empty directory with REKINDLE_CACHE_DIR or, if it is a cache, move " +
                     found.foreign + " away");
}

}  // namespace

Status check_format(const std::string& dir, bool writable) {
  const std::string path = dir + "/format";
  REKINDLE_ASSIGN_OR_RETURN(std::optional<std::string> text, read_file(path, kMostFormatBytes));
  if (!text || !parse_format(*text)) {
    const Contents found = contents_of(dir);
    const bool is_old = has_only_a_database(dir);
    // A process that began meanwhile may have made all that, after its file of the format.
    REKINDLE_ASSIGN_OR_RETURN(text, read_file(path, kMostFormatBytes));
    const bool is_sound = text && parse_format(*text);
    if (!is_sound && !found.own.empty() && !found.foreign.empty())
      return not_a_cache(dir, found, text.has_value());
    if (!text && is_old) return another_format(dir, "1", false);
  }
  if (const auto version = text ? parse_format(*text) : std::nullopt) {
    if (*version == kCacheFormat) return {};
    return another_format(dir, std::to_string(*version), *version > kCacheFormat);
  }
  if (text) log_warning(path + " is damaged" + (writable ? "; it is written again" : ""));
  if (!writable) return {};
  REKINDLE_ASSIGN_OR_RETURN(NewFile file, NewFile::create(path, 0600));
  REKINDLE_RETURN_IF_ERROR(file.write(std::string(kPrefix) + std::to_string(kCacheFormat) + "\n"));
  return file.publish_unsynced();
}

}  // namespace rekindle
