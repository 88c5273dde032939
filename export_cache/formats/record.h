// Record: the envelope of everything the cache stores. Bytes read back are
// untrusted until decode_record accepts them.
//
//   record  := magic version kind codec key raw_length stored_length raw_digest payload checksum
//   magic         := "RKND"          4 bytes
//   version       := u16             kRecordVersion
//   kind          := u8              RecordKind
//   codec         := u8              0: stored as it is, 1: zstd, one frame that states its content size
//   key           := 16 bytes        what the record is stored under: catches misfiled and renamed records
//   raw_length    := u64             at most kMaxRawBytes
//   stored_length := u64             exactly the bytes between raw_digest and checksum
//   raw_digest    := 16 bytes        XXH3-128 of the raw bytes
//   payload       := byte*           stored_length bytes
//   checksum      := u64             XXH3-64 of all bytes before it          (numbers are little-endian)
//
// Format version history
//   1  first version
//   2  summaries hold the cost and the prekeys, usage holds heat and removals; tombstones, pins, candidates
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/bytes.h"
#include "src/base/digest.h"
#include "src/base/result.h"

namespace rekindle {

inline constexpr std::uint16_t kRecordVersion = 2;
inline constexpr std::uint64_t kMaxRawBytes = std::uint64_t{1} << 30;
inline constexpr std::size_t kRecordOverhead = 4 + 2 + 1 + 1 + 16 + 8 + 8 + 16 + 8;

// DO NOT CHANGE THESE VALUES: they are stored.
enum class RecordKind : std::uint8_t {
  kEntry = 1,       // export_cache/formats/entry.h
  kManifest = 2,    // export_cache/formats/manifest.h
  kSummary = 3,     // export_cache/formats/summary.h
  kUsage = 4,       // export_cache/upkeep/usage.h
  kTombstones = 5,  // export_cache/formats/tombstones.h
  kPin = 6,         // no bytes: the entry under that key stays
  kCandidates = 7,  // export_cache/formats/object.h
  kState = 8,       // export_cache/tiers/state.h
  kLeaves = 9,      // export_cache/formats/leaf_tree.h
  kMiss = 10,       // export_cache/misses/miss_log.h
};
const char* record_kind_name(RecordKind kind);

// Wraps `raw`. Compressed with zstd when that makes it smaller.
// kInvalidArgument when `raw` exceeds kMaxRawBytes.
Result<std::string> encode_record(RecordKind kind, const Digest& key, std::string_view raw);

// The raw bytes. kCorruption, naming what failed, unless every field, the checksum, the lengths
// and the digest hold and the record is of `kind` and was stored under `key`. Allocates nothing
// before the lengths are checked.
Result<std::string> decode_record(std::string_view record, RecordKind kind, const Digest& key);

// The size of the record that `bytes` begins with, and the key it was stored under, as its header claims:
// nothing but the magic and the presence of so many bytes is checked. kCorruption otherwise.
Result<std::size_t> claimed_record_size(std::string_view bytes);
Result<Digest> claimed_record_key(std::string_view bytes);

// Whether a record begins here that another version of the format wrote.
bool of_another_version(std::string_view bytes);

// Unix seconds between 1970 and far ahead: arithmetic with them cannot overflow.
inline bool is_time(std::int64_t time) { return time >= 0 && time < (std::int64_t{1} << 40); }

// The digest at the reader's position; zero, and the reader has failed, when it does not fit.
Digest read_digest(ByteReader& reader);

}  // namespace rekindle
