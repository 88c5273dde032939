// Options of the export cache. The only file of this room that reads environment variables.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace rekindle {

enum class CacheMode {
  kReadWrite,
  // Never writes but the lock file: no directory, no journal, no quarantine; counters live in memory only.
  kReadOnly,
};

inline constexpr std::uint64_t kDefaultSizeLimit = std::uint64_t{5} << 30;
inline constexpr double kLowWater = 0.85;

// REKINDLE_CACHE_SIZE (units.h), else kDefaultSizeLimit; a value that is no size is warned of once and ignored.
std::uint64_t default_size_limit();

struct CacheOptions {
  std::string dir;  // empty: default_cache_dir()
  CacheMode mode = CacheMode::kReadWrite;
  // How long one operation waits for other processes before it fails with kIo.
  std::chrono::milliseconds lock_timeout{10'000};
  // Bytes of entries above which a store evicts, down to kLowWater of it. 0: never.
  std::uint64_t size_limit = default_size_limit();
};

// The first that is set and not empty: REKINDLE_CACHE_DIR, ORTMODULE_CACHE_DIR (both made absolute),
// $XDG_CACHE_HOME/rekindle (when absolute, as its standard asks), $HOME/.cache/rekindle (when the home exists
// and can be written), else /var/tmp/rekindle-<uid>. Never asks the user database, never fails, creates
// nothing.
std::string default_cache_dir();

}  // namespace rekindle
