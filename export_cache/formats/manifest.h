// Manifest: under one prekey, the candidate entries with what their exports observed, newest first.
//
//   stored    := record(kind manifest, key = prekey, raw = manifest)      see export_cache/formats/record.h
//   manifest  := count:u64 candidate*
//   candidate := entry:16 bytes created:i64 observations:string           string := length:u64 byte*
//
// Format version history: the record's version.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/digest.h"
#include "src/base/result.h"

namespace rekindle {

inline constexpr std::size_t kMaxCandidates = 64;
inline constexpr std::size_t kMaxObservationBytes = 16 * 1024 * 1024;

struct Candidate {
  Digest entry;              // id of the entry
  std::string observations;  // opaque: what must hold now for this candidate to be a hit
  std::int64_t created = 0;  // unix seconds
};

// kInvalidArgument when they are more than kMaxObservationBytes.
Status check_observations(std::string_view observations);

// kInvalidArgument when a bound above is exceeded.
Result<std::string> encode_manifest(const Digest& prekey, const std::vector<Candidate>& candidates);

// kCorruption, naming what failed, unless `record` is a sound manifest stored under `prekey`.
Result<std::vector<Candidate>> decode_manifest(std::string_view record, const Digest& prekey);

// Puts `added` first. A candidate with equal observations could never be chosen again and is dropped, and so
// are the oldest above kMaxCandidates. Returns the ids of the dropped candidates' entries.
std::vector<Digest> add_candidate(std::vector<Candidate>& candidates, Candidate added);

}  // namespace rekindle
