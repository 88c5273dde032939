// Options of the export cache. The only file of this room that reads environment variables.
#pragma once

#include <chrono>
#include <string>

namespace rekindle {

enum class CacheMode {
  kReadWrite,
  // Never writes but the lock file: no directory, no journal, no quarantine; counters live in memory only.
  kReadOnly,
};

struct CacheOptions {
  std::string dir;  // empty: default_cache_dir()
  CacheMode mode = CacheMode::kReadWrite;
  // How long one operation waits for other processes before it fails with kIo.
  std::chrono::milliseconds lock_timeout{10'000};
};

// The first that is set and not empty: REKINDLE_CACHE_DIR, ORTMODULE_CACHE_DIR (both made absolute),
// $XDG_CACHE_HOME/rekindle (when absolute, as its standard asks), $HOME/.cache/rekindle (when the home exists
// and can be written), else /var/tmp/rekindle-<uid>. Never asks the user database, never fails, creates
// nothing.
std::string default_cache_dir();

}  // namespace rekindle
