// The last few misses of a cache directory and why they missed, each in a small file of its own, written by
// the process that missed. Takes no lock of the database and is read without one.
//
//   misses/<unix nanoseconds>-<pid>-<random>.miss1 := record(kind miss, key = zero, raw = miss)
//   miss := time:i64 model:string reason:string prekey:16 bytes nearest:16 bytes nearest_created:i64
//           equal:u64 total:u64 omitted:u64
//           count:u64 { path:string before:string after:string places:u64 }*   string := length:u64 byte*
//
// A file that fails a check is no miss. Format version history: the file name's suffix.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "export_cache/misses/differences.h"
#include "src/base/digest.h"
#include "src/base/result.h"

namespace rekindle {

inline constexpr std::size_t kMaxMisses = 16;
inline constexpr std::size_t kMaxMissDifferences = 32;
inline constexpr std::size_t kMaxMissText = 512;

struct Miss {
  std::int64_t time = 0;  // unix seconds
  std::string model;      // LeafTree::model
  std::string reason;     // "cold", "key", "observations", "version", "evicted", "corrupt", ...
  Digest prekey;
  Digest nearest;  // the entry that the differences are against; zero: there is none
  std::int64_t nearest_created = 0;
  std::uint64_t equal = 0;  // leaves, of `total`
  std::uint64_t total = 0;
  std::uint64_t omitted = 0;  // differences beyond the first kMaxMissDifferences
  std::vector<Difference> differences;
};

// Adds a miss and removes all but the newest kMaxMisses. `dir` is made (0700) with the first one. Texts are
// cut to kMaxMissText. kIo when the system refuses; nothing is then left of it.
Status log_miss(const std::string& dir, Miss miss);
// Newest first. What cannot be read is left out.
std::vector<Miss> read_misses(const std::string& dir);
void clear_misses(const std::string& dir);

}  // namespace rekindle
