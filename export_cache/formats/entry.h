// Entry: what one export leaves behind, as named sections of bytes and a description of it.
//
//   stored  := record(kind entry, key = entry id, raw = entry)            see export_cache/formats/record.h
//   entry   := meta:string count:u64 section*
//   section := name:string bytes:string                                   string := length:u64 byte*
//
// Sections come in ascending order of their names, each name once. Format
// version history: the record's version.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "export_cache/formats/leaf_tree.h"
#include "src/base/digest.h"
#include "src/base/result.h"

namespace rekindle {

inline constexpr std::size_t kMaxSections = 64;
inline constexpr std::size_t kMaxSectionName = 64;
inline constexpr std::size_t kMaxMetaBytes = 64 * 1024;

struct Entry {
  // By name: "exported" (ONNX bytes), "joint" (differentiated graph), "contract" (JSON of inputs and
  // outputs). The cache gives no meaning to them.
  std::map<std::string, std::string> sections;
  // A flat JSON object: model, mode, inputs, versions, created, export_seconds. It describes and never
  // decides, so it is not part of the id.
  std::string meta = "{}";
  // What key and observations were made of. Stored beside the entry, not part of it nor of its id, and not
  // loaded with it: see ExportCache::leaves.
  LeafTree leaves{};
};

// The digest of the sections: equal exports have equal ids, whoever made them and when.
Digest entry_id(const Entry& entry);

// kInvalidArgument when a bound above or the record's size is exceeded, a section name is empty, or `meta` is
// not a JSON object of scalars.
Status check_entry(const Entry& entry);
Result<std::string> encode_entry(const Entry& entry);

// kCorruption, naming what failed, unless `record` is a sound record of the entry with id `expected`.
Result<Entry> decode_entry(std::string_view record, const Digest& expected);

// kInvalidArgument unless `meta` is a JSON object of scalars of at most kMaxMetaBytes.
Status check_meta(std::string_view meta);

}  // namespace rekindle
