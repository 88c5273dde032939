#include "export_cache/summary.h"

#include "export_cache/record.h"
#include "src/base/bytes.h"

namespace rekindle {

EntryInfo make_info(const Entry& entry, std::uint64_t stored_bytes, std::int64_t created) {
  EntryInfo info;
  info.id = entry_id(entry);
  info.created = created;
  info.stored_bytes = stored_bytes;
  info.meta = entry.meta;
  for (const auto& [name, bytes] : entry.sections) {
    info.sections[name] = bytes.size();
    info.raw_bytes += bytes.size();
  }
  return info;
}

Result<std::string> encode_summary(const EntryInfo& info) {
  ByteWriter writer;
  writer.number(info.created);
  writer.number(info.raw_bytes);
  writer.number(info.stored_bytes);
  writer.string(info.meta);
  writer.number<std::uint64_t>(info.sections.size());
  for (const auto& [name, size] : info.sections) {
    writer.string(name);
    writer.number(size);
  }
  return encode_record(RecordKind::kSummary, info.id, writer.bytes());
}

Result<EntryInfo> decode_summary(std::string_view record, const Digest& id) {
  REKINDLE_ASSIGN_OR_RETURN(const std::string raw, decode_record(record, RecordKind::kSummary, id));
  ByteReader reader(raw);
  EntryInfo info;
  info.id = id;
  info.created = reader.number<std::int64_t>();
  info.raw_bytes = reader.number<std::uint64_t>();
  info.stored_bytes = reader.number<std::uint64_t>();
  info.meta = reader.string();
  for (std::uint64_t left = reader.count(16); left > 0 && !reader.failed(); --left) {
    const std::string name(reader.string());
    info.sections[name] = reader.number<std::uint64_t>();
  }
  if (!reader.at_end() || info.sections.size() > kMaxSections || !check_meta(info.meta).ok()) {
    return corruption("summary record " + id.hex() + ": bad lengths or meta");
  }
  return info;
}

}  // namespace rekindle
