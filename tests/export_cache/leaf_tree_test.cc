#include "export_cache/formats/leaf_tree.h"

#include <catch2/catch.hpp>
#include <string>

#include "export_cache/formats/record.h"
#include "src/base/bytes.h"

using namespace rekindle;

namespace {

const Digest kEntry = digest_of("entry");

LeafTree small_tree() {
  LeafTree tree;
  tree.model = "tiny.Tiny";
  tree.leaves = {{"model.training", "True"}, {"model.class", "tiny.Tiny " + kEntry.hex()}};
  tree.parts[kEntry.hex()] = {{".forward", "function Tiny.forward"}};
  return tree;
}

}  // namespace

TEST_CASE("a leaf tree comes back as it was", "[export_cache]") {
  const LeafTree tree = small_tree();
  const auto record = encode_leaf_tree(kEntry, tree);
  REQUIRE(record.ok());
  const auto back = decode_leaf_tree(*record, kEntry);
  REQUIRE(back.ok());
  REQUIRE(back->model == tree.model);
  REQUIRE(back->leaves == tree.leaves);
  REQUIRE(back->parts == tree.parts);
}

TEST_CASE("a leaf tree that fails a check is corrupt", "[export_cache]") {
  const std::string record = *encode_leaf_tree(kEntry, small_tree());
  REQUIRE(decode_leaf_tree(record, digest_of("other")).error().code == ErrorCode::kCorruption);
  for (std::size_t size = 0; size < record.size(); ++size) {
    REQUIRE(!decode_leaf_tree(std::string_view(record).substr(0, size), kEntry).ok());
  }
  // Sound envelopes around unsound trees.
  ByteWriter writer;
  writer.string("tiny.Tiny");
  writer.number<std::uint64_t>(std::uint64_t{1} << 60);
  const auto huge = encode_record(RecordKind::kLeaves, kEntry, writer.bytes());
  REQUIRE(decode_leaf_tree(*huge, kEntry).error().code == ErrorCode::kCorruption);
  const auto longer =
      encode_record(RecordKind::kLeaves, kEntry, *decode_record(record, RecordKind::kLeaves, kEntry) + "x");
  REQUIRE(decode_leaf_tree(*longer, kEntry).error().code == ErrorCode::kCorruption);
}

TEST_CASE("a leaf tree is bounded: parts give way first, then leaves", "[export_cache]") {
  LeafTree tree = small_tree();
  const std::string large(kMaxLeafTreeBytes / 3, 'x');
  for (const char* name : {"a", "b", "c"}) tree.parts[name] = {{".part", large}};
  auto record = encode_leaf_tree(kEntry, tree);
  REQUIRE(record.ok());
  auto back = decode_leaf_tree(*record, kEntry);
  REQUIRE(back.ok());
  REQUIRE(back->leaves == tree.leaves);
  REQUIRE(back->parts.size() == 3);  // the small one and two of the large ones
  for (int i = 0; i < 3; ++i) tree.leaves.push_back({"model.text" + std::to_string(i), large});
  record = encode_leaf_tree(kEntry, tree);
  REQUIRE(record.ok());
  back = decode_leaf_tree(*record, kEntry);
  REQUIRE(back.ok());
  REQUIRE(back->leaves.size() == 4);
}
