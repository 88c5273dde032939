// Records of every kind but the manifest: the envelope, and the entry, summary and usage inside.
//
// A checksum stops nearly every mutation at the envelope, so each input is tried three times: as it is, with
// its checksum corrected, and as the content of an envelope that is sound.
#include "export_cache/formats/record.h"

#include "export_cache/formats/entry.h"
#include "export_cache/formats/summary.h"
#include "export_cache/upkeep/usage.h"
#include "src/base/bytes.h"
#include "tests/fuzz/fuzz.h"

using namespace rekindle;

namespace {

const Digest kKey = digest_of("fuzz");

// What is accepted once is written back as the same bytes, up to compression.
void check_record(std::string_view record) {
  if (const auto raw = decode_record(record, RecordKind::kEntry, kKey); raw.ok()) {
    const auto again = encode_record(RecordKind::kEntry, kKey, *raw);
    fuzz::require(again.ok(), "an accepted record can be written");
    fuzz::require(*decode_record(*again, RecordKind::kEntry, kKey) == *raw, "a record keeps its content");
  }
  fuzz::require(!decode_entry(record, kKey).ok(), "no entry has an id that is not its digest");
}

std::string with_checksum(std::string_view record) {
  if (record.size() < sizeof(std::uint64_t)) return std::string(record);
  ByteWriter writer;
  writer.raw(record.substr(0, record.size() - sizeof(std::uint64_t)));
  writer.number(checksum_of(writer.bytes()));
  return std::move(writer).take();
}

void check_entry_content(std::string_view raw) {
  const auto record = encode_record(RecordKind::kEntry, kKey, raw);
  fuzz::require(record.ok() && !decode_entry(*record, kKey).ok(), "no entry of another digest");
}

void check_summary_content(std::string_view raw) {
  const auto info = decode_summary(*encode_record(RecordKind::kSummary, kKey, raw), kKey);
  if (!info.ok()) return;
  const auto again = encode_summary(*info);
  fuzz::require(again.ok() && decode_summary(*again, kKey).ok(), "a summary can be written again");
}

void check_usage_content(std::string_view raw) {
  const auto usage = decode_usage(*encode_record(RecordKind::kUsage, Digest{}, raw));
  if (!usage.ok()) return;
  const auto again = encode_usage(*usage);
  fuzz::require(again.ok(), "usage can be written again");
  const auto same = decode_usage(*again);
  fuzz::require(same.ok() && *encode_usage(*same) == *again, "usage keeps its content");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fuzz::view(data, size);
  check_record(bytes);
  check_record(with_checksum(bytes));
  check_entry_content(bytes);
  check_summary_content(bytes);
  check_usage_content(bytes);
  return 0;
}
