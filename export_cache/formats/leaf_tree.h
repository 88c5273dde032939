// LeafTree: what the key and the observations of an entry were made of, for people who ask why another call
// missed. It decides nothing and no hit reads it: it lies beside the entry, under the entry's id.
//
//   stored := record(kind leaves, key = entry id, raw = tree)             see export_cache/formats/record.h
//   tree   := model:string leaves count:u64 { digest:string leaves }*
//   leaves := count:u64 { path:string text:string }*                      string := length:u64 byte*
//
// A text stands for a value: the value itself while it is short, else a head that ends in a digest of 32
// hexadecimal digits. `parts` says what such a digest was made of, so that two texts can be compared down to
// the parts that differ; the path of a part continues the path of its whole, joiner included. Two texts that
// begin with kListMark hold a list (items are delimited by the mark), two that begin with kSequenceMark a
// sequence of 2-byte units.
//
// Format version history: the record's version.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/digest.h"
#include "src/base/result.h"

namespace rekindle {

inline constexpr std::size_t kMaxLeafTreeBytes = 8 * 1024 * 1024;
inline constexpr char kListMark = '\x1f';
inline constexpr char kSequenceMark = '\x1e';

struct Leaf {
  std::string path;
  std::string text;

  bool operator==(const Leaf&) const = default;
};
using Leaves = std::vector<Leaf>;

struct LeafTree {
  std::string model;  // qualified class of the wrapped module: what entries of one model have in common
  Leaves leaves;
  std::map<std::string, Leaves, std::less<>> parts;  // by digest

  bool empty() const { return leaves.empty(); }
};

// Never more than kMaxLeafTreeBytes: parts that do not fit are left out, then leaves.
Result<std::string> encode_leaf_tree(const Digest& entry, const LeafTree& tree);

// kCorruption, naming what failed, unless `record` is a sound tree stored under `entry`.
Result<LeafTree> decode_leaf_tree(std::string_view record, const Digest& entry);

}  // namespace rekindle
