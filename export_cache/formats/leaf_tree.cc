#include "export_cache/formats/leaf_tree.h"

#include "export_cache/formats/record.h"
#include "src/base/bytes.h"

namespace rekindle {
namespace {

constexpr std::size_t kLength = sizeof(std::uint64_t);

std::size_t size_of(const Leaf& leaf) { return 2 * kLength + leaf.path.size() + leaf.text.size(); }

// The leading leaves that fit into `room`, which shrinks by what they take.
std::size_t fitting(const Leaves& leaves, std::size_t& room) {
  std::size_t count = 0;
  while (count < leaves.size() && size_of(leaves[count]) <= room) room -= size_of(leaves[count++]);
  return count;
}

void write_leaves(ByteWriter& writer, const Leaves& leaves, std::size_t count) {
  writer.number<std::uint64_t>(count);
  for (std::size_t i = 0; i < count; ++i) {
    writer.string(leaves[i].path);
    writer.string(leaves[i].text);
  }
}

Leaves read_leaves(ByteReader& reader) {
  Leaves leaves;
  for (std::uint64_t left = reader.count(2 * kLength); left > 0 && !reader.failed(); --left) {
    std::string path(reader.string());
    leaves.push_back({std::move(path), std::string(reader.string())});
  }
  return leaves;
}

}  // namespace

Result<std::string> encode_leaf_tree(const Digest& entry, const LeafTree& tree) {
  ByteWriter head;
  head.string(tree.model);
  std::size_t room = kMaxLeafTreeBytes - 3 * kLength;
  room -= std::min(room, tree.model.size());
  write_leaves(head, tree.leaves, fitting(tree.leaves, room));

  ByteWriter parts;
  std::uint64_t count = 0;
  for (const auto& [digest, leaves] : tree.parts) {
    std::size_t left = room - std::min(room, 2 * kLength + digest.size());
    if (left == 0 || fitting(leaves, left) < leaves.size()) continue;
    room = left;
    ++count;
    parts.string(digest);
    write_leaves(parts, leaves, leaves.size());
  }
  head.number(count);
  head.raw(parts.bytes());
  return encode_record(RecordKind::kLeaves, entry, head.bytes());
}

Result<LeafTree> decode_leaf_tree(std::string_view record, const Digest& entry) {
  REKINDLE_ASSIGN_OR_RETURN(const std::string raw, decode_record(record, RecordKind::kLeaves, entry));
  ByteReader reader(raw);
  LeafTree tree;
  tree.model = reader.string();
  tree.leaves = read_leaves(reader);
  for (std::uint64_t left = reader.count(2 * kLength); left > 0 && !reader.failed(); --left) {
    const std::string digest(reader.string());
    tree.parts[digest] = read_leaves(reader);
  }
  if (!reader.at_end() || raw.size() > kMaxLeafTreeBytes) {
    return corruption("leaves record " + entry.hex() + ": bad lengths");
  }
  return tree;
}

}  // namespace rekindle
