// The cache directory: who may own it, what lies in it.
//
//   rekindle.lock      flock: shared for readers, exclusive for writers
//   db/                the database
//   journal/           events not yet folded, one file a process
//   inflight/          one file for each export that is under way; see single_flight.h
//   quarantine-*/      the last database that failed to open
#pragma once

#include <cstdint>
#include <string>

#include "export_cache/options.h"
#include "src/base/result.h"

namespace rekindle {

// kReadWrite: creates `dir` (0700, parents too) unless it exists. Both modes: kInvalidArgument when `dir` is
// not a directory, others may write in it, it belongs to another user (kReadOnly allows that: prebuilt
// images), or it is another user's link; kIo when the system refuses. kReadOnly accepts a missing directory:
// an empty cache.
Status prepare_directory(const std::string& dir, CacheMode mode);

// Bytes of the regular files below `dir`; what cannot be read counts as zero.
std::uint64_t disk_bytes(const std::string& dir);

}  // namespace rekindle
