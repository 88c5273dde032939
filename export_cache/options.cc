#include "export_cache/options.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string>

#include "export_cache/units.h"
#include "src/base/log.h"

namespace rekindle {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

bool usable_home(const std::string& home) {
  std::error_code ignored;  // an unreadable home is not a usable one
  if (!fs::path(home).is_absolute() || !fs::is_directory(home, ignored)) return false;
  // A home that cannot be written still serves when a cache was put there beforehand.
  return access(home.c_str(), W_OK) == 0 || fs::is_directory(fs::path(home) / ".cache" / "rekindle", ignored);
}

}  // namespace

std::uint64_t default_size_limit() {
  const std::string text = variable("REKINDLE_CACHE_SIZE");
  if (text.empty()) return kDefaultSizeLimit;
  const auto parsed = parse_size(text);
  if (parsed.ok()) return *parsed;
  static std::once_flag warned;
  std::call_once(warned, [&] { log_warning("REKINDLE_CACHE_SIZE is ignored: " + parsed.error().message); });
  return kDefaultSizeLimit;
}

std::string default_remote() { return variable("REKINDLE_REMOTE"); }

bool allowed_by(const char* name) { return variable(name) == "1"; }

std::string with_home(const std::string& path) {
  const std::string home = variable("HOME");
  const bool is_of_home = path == "~" || path.starts_with("~/");
  return is_of_home && !home.empty() ? home + path.substr(1) : path;
}

std::string default_cache_dir() {
  for (const char* name : {"REKINDLE_CACHE_DIR", "ORTMODULE_CACHE_DIR"}) {
    const std::string dir = with_home(variable(name));
    if (dir.empty()) continue;
    std::error_code failed;
    const fs::path absolute = fs::absolute(dir, failed);
    return failed ? dir : absolute.string();
  }
  return user_cache_dirs().front();
}

std::vector<std::string> user_cache_dirs() {
  std::vector<std::string> dirs;
  if (const std::string xdg = variable("XDG_CACHE_HOME"); fs::path(xdg).is_absolute()) {
    dirs.push_back((fs::path(xdg) / "rekindle").string());
  }
  if (const std::string home = variable("HOME"); usable_home(home)) {
    dirs.push_back((fs::path(home) / ".cache" / "rekindle").string());
  }
  dirs.push_back("/var/tmp/rekindle-" + std::to_string(geteuid()));
  return dirs;
}

}  // namespace rekindle
