// Options of the export cache. The only file of this room that reads environment variables.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "export_cache/files/filesystem.h"

namespace rekindle {

enum class CacheMode {
  kReadWrite,
  // Never writes but the lock file: no directory, no journal, no quarantine; counters live in memory only.
  kReadOnly,
};

inline constexpr std::uint64_t kDefaultSizeLimit = std::uint64_t{5} << 30;
inline constexpr double kLowWater = 0.85;

// REKINDLE_CACHE_SIZE (units.h), else kDefaultSizeLimit; a value that is
// no size is warned of once and ignored.
std::uint64_t default_size_limit();
// REKINDLE_REMOTE: see remote.h.
std::string default_remote();
// Whether a variable is set to 1, such as REKINDLE_ALLOW_SHARED_DIR.
bool allowed_by(const char* variable);

struct CacheOptions {
  std::string dir{};  // empty: default_cache_dir()
  CacheMode mode = CacheMode::kReadWrite;
  // How long one operation waits for other processes before it fails with kIo.
  std::chrono::milliseconds lock_timeout{10'000};
  // Bytes of entries above which a store, and opening the cache, evict down to kLowWater of it. 0: never.
  std::uint64_t size_limit = default_size_limit();
  // Further tiers behind the directory, such as "file:///shared/rekindle ro"; see remote.h.
  std::string remote = default_remote();
  // Accept a directory that other users may write. They can then make the cache answer what they like.
  bool allow_shared_dir = allowed_by("REKINDLE_ALLOW_SHARED_DIR");
  // Keep the database on a network file system. Two machines that write at a time will damage it.
  bool allow_network_database = allowed_by("REKINDLE_ALLOW_NETWORK_DB");
  FilesystemProbe filesystem_type = rekindle::filesystem_type;
};

// With the user's home ($HOME) in the place of a "~" before the first slash, as a shell has it.
std::string with_home(const std::string& path);

// The first that is set and not empty: REKINDLE_CACHE_DIR, ORTMODULE_CACHE_DIR (both with_home and absolute),
// else the first of user_cache_dirs. Never fails, creates nothing.
std::string default_cache_dir();

// $XDG_CACHE_HOME/rekindle (when absolute, as its standard asks), $HOME/.cache/rekindle (when
// the home exists and can be written), /var/tmp/rekindle-<uid>; those that there are, in this
// order. Never asks the user database.
std::vector<std::string> user_cache_dirs();

}  // namespace rekindle
