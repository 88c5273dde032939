// EntryInfo: one line of a listing. Its stored part, the summary, is written beside each entry so that a
// listing does not read the entries.
//
//   stored  := record(kind summary, key = entry id, raw = summary)        see export_cache/formats/record.h
//   summary := created:i64 raw_bytes:u64 stored_bytes:u64 cost_seconds:f64 meta:string
//              count:u64 { name:string size:u64 }*
//              count:u64 { prekey:16 bytes }*                            at most kMaxPrekeys
//
// Format version history: the record's version.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "export_cache/formats/entry.h"
#include "src/base/digest.h"
#include "src/base/result.h"

namespace rekindle {

inline constexpr std::size_t kMaxPrekeys = 64;

struct EntryInfo {
  Digest id;
  std::int64_t created = 0;                       // unix seconds: when it was stored
  std::uint64_t raw_bytes = 0;                    // of all sections
  std::uint64_t stored_bytes = 0;                 // of the record, compressed
  std::string meta;                               // Entry::meta
  std::map<std::string, std::uint64_t> sections;  // name -> bytes
  std::vector<Digest> prekeys;                    // whose manifests lead here, oldest first
  double cost_seconds = 0;  // what a hit saves: cost_seconds of meta, else export_seconds
  // From usage and pins, not from the summary.
  std::uint64_t hits = 0;
  double seconds_saved = 0;
  std::int64_t last_used = 0;  // unix seconds; 0: never
  double heat = 0;             // EntryUsage::heat
  bool pinned = false;
};

// Without prekeys and usage.
EntryInfo make_info(const Entry& entry, std::uint64_t stored_bytes, std::int64_t created);
Result<std::string> encode_summary(const EntryInfo& info);
// kCorruption, naming what failed, unless `record` is a sound summary
// stored under `id`. Usage fields stay zero.
Result<EntryInfo> decode_summary(std::string_view record, const Digest& id);

// A scalar of `info.meta` as text; empty when it is absent.
std::string meta_value(const EntryInfo& info, const std::string& name);

}  // namespace rekindle
