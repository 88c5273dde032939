// Object: an entry as it travels outside the database, with the candidates that lead to it, so that a file of
// one can be found again by whoever has nothing else.
//
//   object            := entry_record candidates_record             two of export_cache/formats/record.h
//   entry_record      := record(kind entry, key = entry id)         see export_cache/formats/entry.h
//   candidates_record := record(kind candidates, key = entry id, raw = references)
//   references        := count:u64 { prekey:16 bytes created:i64 observations:string }*
//
// There are at most kMaxPrekeys references, the newest first; string := length:u64 byte*.
// The candidates come second and have a checksum of their own: when they rot, the entry is still whole.
// Format version history: the record's version.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "export_cache/formats/entry.h"
#include "src/base/digest.h"
#include "src/base/result.h"

namespace rekindle {

// A candidate seen from its entry.
struct Reference {
  Digest prekey;
  std::int64_t created = 0;  // unix seconds
  std::string observations;

  bool operator==(const Reference&) const = default;
};

// At most kMaxPrekeys references, the newest; kInvalidArgument when one is out of bounds. `entry_record` is
// what encode_entry returned for `id`.
Result<std::string> encode_object(std::string_view entry_record, const Digest& id,
                                  std::vector<Reference> references);

// The entry of an object. kCorruption, naming what failed, unless it is sound and has the id `expected`.
Result<Entry> decode_object_entry(std::string_view object, const Digest& expected);
// The references of an object; kCorruption likewise.
Result<std::vector<Reference>> decode_object_references(std::string_view object, const Digest& expected);

// kCorruption, naming what failed, unless both halves are sound.
Status check_object(std::string_view object, const Digest& expected);

// The id that an object claims; kCorruption when there are not even so many bytes.
Result<Digest> object_id(std::string_view object);
// The bytes of its entry record, as its header claims. kCorruption when they are not there.
Result<std::string_view> entry_record_of(std::string_view object);

// Those of `a` and `b`, each once, newest first, at most kMaxPrekeys.
std::vector<Reference> merge_references(std::vector<Reference> a, const std::vector<Reference>& b);

}  // namespace rekindle
