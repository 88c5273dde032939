// The cache directory: who may own it, what lies in it.
//
//   format             which format all of this has: format.h
//   rekindle.lock      flock: shared for readers of the database, exclusive for writers
//   db/                the database
//   objects/           one file an entry: object_files.h
//   state              the last commit: tiers/state.h
//   journal/           events not yet folded, one file a process
//   inflight/          one lock file an export under way: single_flight.h
//   misses/            why the last lookups missed, one file each
//   quarantine-*/      the last database that could not be read
#pragma once

#include <cstdint>
#include <string>

#include "export_cache/options.h"
#include "src/base/result.h"

namespace rekindle {

// Where options.dir is a link, puts the directory that it leads to in its place: whoever moves the link later
// moves nothing that is open. kInvalidArgument for a link of another user (unless allow_shared_dir), and for
// one that leads nowhere.
Status follow_link(CacheOptions& options);

// When options.dir is on a network file system, where neither RocksDB nor OS locks can be trusted: moves it
// to a directory of this machine and puts the given one in front of the remote tiers. Not with
// allow_network_database, and not to read a cache that lies there (kReadOnly).
void keep_database_local(CacheOptions& options);

// Makes options.dir ready and returns the mode in which it can be used. kReadWrite: creates it (0700, parents
// too) unless it exists; one that exists, is ours or root's, and cannot be written is used as kReadOnly (a
// prebuilt image). kReadOnly: writes nothing and accepts a missing directory, an empty cache.
//
// kInvalidArgument when it is not a directory, others may write in it (unless allow_shared_dir),
// or it belongs to another user (kReadOnly allows that); kIo when the system refuses.
Result<CacheMode> prepare_directory(const CacheOptions& options);

// Bytes that the files below `dir` take on the disk; what cannot be read counts as zero.
std::uint64_t disk_bytes(const std::string& dir);

}  // namespace rekindle
