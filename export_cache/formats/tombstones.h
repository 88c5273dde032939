// Tombstones: which entries are gone, and why; so that a miss can be explained. A ring of the newest.
//
//   stored     := record(kind tombstones, key = zero, raw = tombstones)  see export_cache/formats/record.h
//   tombstones := count:u64 tombstone*                                   oldest first, at most kMaxTombstones
//   tombstone  := id:16 bytes prekey:16 bytes reason:u8 time:i64         reason: a GoneReason
//
// Format version history: the record's version.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/digest.h"
#include "src/base/result.h"

namespace rekindle {

inline constexpr std::size_t kMaxTombstones = 1024;

// DO NOT CHANGE THESE VALUES: they are stored.
enum class GoneReason : std::uint8_t {
  kEvicted = 1,   // to keep the size bound
  kCorrupt = 2,   // it failed a check
  kRemoved = 3,   // on request: remove or prune
  kCleared = 4,   // with everything else
  kVersion = 5,   // another format version had written it
  kReplaced = 6,  // a newer export with the same observations took its place, or too many candidates did
};
// "evicted", "corrupt", ... for messages and JSON.
const char* gone_reason_name(GoneReason reason);

struct Tombstone {
  Digest id;
  Digest prekey;  // one of those that led to it; zero when not known
  GoneReason reason = GoneReason::kRemoved;
  std::int64_t time = 0;  // unix seconds

  bool operator==(const Tombstone&) const = default;
};

class Tombstones {
 public:
  // Forgets the oldest above kMaxTombstones.
  void add(const Tombstone& tombstone);
  // The newest for an entry id or a prekey.
  std::optional<Tombstone> find(const Digest& id_or_prekey) const;
  const std::vector<Tombstone>& all() const { return ring_; }

 private:
  std::vector<Tombstone> ring_;  // oldest first
};

Result<std::string> encode_tombstones(const Tombstones& tombstones);
// kCorruption, naming what failed.
Result<Tombstones> decode_tombstones(std::string_view record);

}  // namespace rekindle
