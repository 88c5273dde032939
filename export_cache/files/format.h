// The format of a cache directory as a whole: the file `format` at its
// root, one line "rekindle cache format N".
//
// Version history
//   1  everything in the database; had no such file
//   2  entries in objects/, the file state, records of version 2
#pragma once

#include <string>
#include <string_view>

#include "src/base/result.h"

namespace rekindle {

inline constexpr int kCacheFormat = 2;
// A cache gives these names to what lies at its root; temporary files and quarantines have others.
inline constexpr std::string_view kCacheNames[] = {"db",     "format",  "inflight",      "journal",
                                                   "misses", "objects", "rekindle.lock", "state"};

// kUnsupported, naming both versions and the remedy, when `dir` has another format than kCacheFormat; nothing
// in it is touched then. Likewise, naming one of each, when it has no sound file `format` and holds what a
// cache has beside what none has: it is somebody's else. Any other directory without a sound one has none
// yet, or has lost it: `writable` gives it one.
Status check_format(const std::string& dir, bool writable);

}  // namespace rekindle
