// Usage: counters and recency, folded from events. One record in the database; the rest is still in journals.
//
//   stored := record(kind usage, key = zero, raw = usage)                 see export_cache/formats/record.h
//   usage  := lookups:u64 hits:u64 corrupt:u64 stores:u64 store_failures:u64 bypasses:u64
//             evictions:u64 removals:u64 seconds_saved:f64 entries:u64 bytes:u64
//             codes:u64 { code:string n:u64 }*
//             entries:u64 { id:16 bytes hits:u64 seconds_saved:f64 last_used:i64 heat:f64 }*
//             journals:u64 { name:string folded_bytes:u64 }*              string := length:u64 byte*
//
// Format version history: the record's version.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "export_cache/upkeep/stats.h"
#include "src/base/digest.h"
#include "src/base/result.h"

namespace rekindle {

// DO NOT CHANGE THESE VALUES: they are stored in journals.
enum class EventKind : std::uint8_t {
  kLookup = 1,
  kHit = 2,
  kCorrupt = 3,
  kStore = 4,
  kStoreFailure = 5,
  kBypass = 6,
};

struct CacheEvent {
  EventKind kind = EventKind::kLookup;
  std::int64_t time = 0;  // unix seconds
  Digest entry{};         // kHit
  double seconds = 0;     // kHit: seconds saved
  std::string code{};     // kBypass: the reason, at most kMaxCodeBytes
};
inline constexpr std::size_t kMaxCodeBytes = 64;
inline constexpr std::size_t kMaxCodes = 256;  // further codes are counted as "other"

struct EntryUsage {
  std::uint64_t hits = 0;
  double seconds_saved = 0;
  std::int64_t last_used = 0;  // unix seconds; 0: never
  double heat = 0;             // hits, each halved every kHeatHalfLife, as of last_used

  // In any order of times: journals of several processes do not come sorted.
  void hit(std::int64_t time, double seconds);
};
inline constexpr double kHeatHalfLife = 7 * 86400;  // seconds

struct Usage {
  CacheStats counters;  // what events count, entries and bytes; the others stay zero
  std::map<Digest, EntryUsage> entries;
  std::map<std::string, std::uint64_t> folded;  // journal name -> bytes of it that are in here

  void apply(const CacheEvent& event);
};

// Finite and not negative.
bool is_amount(double number);

Result<std::string> encode_usage(const Usage& usage);
// kCorruption, naming what failed.
Result<Usage> decode_usage(std::string_view record);

}  // namespace rekindle
