#include "export_cache/formats/entry.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

#include "export_cache/formats/record.h"
#include "src/base/bytes.h"
#include "tests/support/golden.h"

using namespace rekindle;

namespace {

Entry small_entry() {
  Entry entry;
  entry.sections["contract"] = "{}";
  entry.sections["exported"] = std::string("\x08\x09\x00onnx", 7);
  entry.meta = R"({"model":"Tiny","mode":"train","created":1700000000,"export_seconds":1.5})";
  return entry;
}

// A record around raw bytes that no encoder would write.
Result<Entry> decode_raw(const std::string& raw, const Digest& id = digest_of("id")) {
  return decode_entry(*encode_record(RecordKind::kEntry, id, raw), id);
}

std::string raw_entry(std::string_view meta, std::uint64_t count,
                      std::initializer_list<std::string_view> names) {
  ByteWriter writer;
  writer.string(meta);
  writer.number(count);
  for (const std::string_view name : names) {
    writer.string(name);
    writer.string("bytes");
  }
  return writer.bytes();
}

}  // namespace

TEST_CASE("the bytes of a small entry are pinned", "[export_cache]") {
  const Entry entry = small_entry();
  REQUIRE(entry_id(entry).hex() == "baf75a039ff1372c6d3a3c9e726fb4bd");
  testing::check_golden("entry/v2_plain.bin", *encode_entry(entry));
}

TEST_CASE("a compressed entry of format version 2 can be read", "[export_cache]") {
  Entry entry = small_entry();
  entry.sections["joint"] = std::string(4000, 'g');
  const std::string path = testing::golden_path("entry/v2_zstd.bin");
  // Other zstd versions may compress otherwise, so only reading is pinned.
  if (std::getenv("REKINDLE_ACCEPT") != nullptr)
    testing::check_golden("entry/v2_zstd.bin", *encode_entry(entry));
  const auto back = decode_entry(testing::read_file(path), entry_id(entry));
  REQUIRE(back.ok());
  REQUIRE(back->sections == entry.sections);
  REQUIRE(back->meta == entry.meta);
}

TEST_CASE("the id covers the sections and not the meta", "[export_cache]") {
  const Entry entry = small_entry();
  Entry described = entry, changed = entry, renamed = entry;
  described.meta = "{}";
  changed.sections["exported"] += "x";
  renamed.sections["joint"] = renamed.sections.extract("exported").mapped();
  REQUIRE(entry_id(described) == entry_id(entry));
  REQUIRE(entry_id(changed) != entry_id(entry));
  REQUIRE(entry_id(renamed) != entry_id(entry));
}

TEST_CASE("an entry filed under another entry's id is corruption", "[export_cache]") {
  const Digest other = digest_of("other");
  ByteWriter writer;
  writer.string("{}");
  writer.number<std::uint64_t>(0);
  const auto entry = decode_raw(writer.bytes(), other);
  REQUIRE(!entry.ok());
  REQUIRE(entry.error().code == ErrorCode::kCorruption);
  REQUIRE(entry.error().message.find("another digest") != std::string::npos);
}

TEST_CASE("sound records around unsound entries are corruption", "[export_cache]") {
  const std::string raws[] = {"",
                              raw_entry("not json", 0, {}),
                              raw_entry("[]", 0, {}),
                              raw_entry("{}", 1, {}),
                              raw_entry("{}", ~0ull, {"a"}),
                              raw_entry("{}", 2, {"b", "a"}),
                              raw_entry("{}", 2, {"a", "a"}),
                              raw_entry("{}", 1, {""}),
                              raw_entry("{}", 1, {std::string(kMaxSectionName + 1, 'n')}),
                              raw_entry("{}", 0, {"a"})};
  for (const std::string& raw : raws) {
    const auto entry = decode_raw(raw);
    REQUIRE(!entry.ok());
    REQUIRE(entry.error().code == ErrorCode::kCorruption);
  }
}

TEST_CASE("an entry over a bound is refused with the bound", "[export_cache]") {
  Entry many, named, nested, broken, talkative;
  for (std::size_t i = 0; i <= kMaxSections; ++i) many.sections[std::to_string(i)] = "";
  named.sections[std::string(kMaxSectionName + 1, 'n')] = "";
  nested.meta = R"({"inputs": [1, 2]})";
  broken.meta = "{";
  talkative.meta = "{}" + std::string(kMaxMetaBytes, ' ');
  for (const Entry* entry : {&many, &named, &nested, &broken, &talkative}) {
    const auto record = encode_entry(*entry);
    REQUIRE(!record.ok());
    REQUIRE(record.error().code == ErrorCode::kInvalidArgument);
  }
}
