#include "export_cache/formats/summary.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "export_cache/formats/record.h"

namespace rekindle {
namespace {

double cost_of(const std::string& meta) {
  const auto parsed = nlohmann::json::parse(meta, nullptr, /*allow_exceptions=*/false);
  for (const char* name : {"cost_seconds", "export_seconds"}) {
    const auto value = parsed.is_object() ? parsed.find(name) : parsed.end();
    if (value == parsed.end() || !value->is_number()) continue;
    const double seconds = value->get<double>();
    if (std::isfinite(seconds) && seconds >= 0) return seconds;
  }
  return 0;
}

}  // namespace

EntryInfo make_info(const Entry& entry, std::uint64_t stored_bytes, std::int64_t created) {
  EntryInfo info;
  info.id = entry_id(entry);
  info.created = created;
  info.stored_bytes = stored_bytes;
  info.meta = entry.meta;
  info.cost_seconds = cost_of(entry.meta);
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
  writer.number(info.cost_seconds);
  writer.string(info.meta);
  writer.number<std::uint64_t>(info.sections.size());
  for (const auto& [name, size] : info.sections) {
    writer.string(name);
    writer.number(size);
  }
  writer.number<std::uint64_t>(info.prekeys.size());
  for (const Digest& prekey : info.prekeys) writer.raw(prekey.view());
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
  info.cost_seconds = reader.number<double>();
  info.meta = reader.string();
  for (std::uint64_t left = reader.count(16); left > 0 && !reader.failed(); --left) {
    const std::string name(reader.string());
    info.sections[name] = reader.number<std::uint64_t>();
  }
  for (std::uint64_t left = reader.count(sizeof(Digest)); left > 0 && !reader.failed(); --left) {
    info.prekeys.push_back(read_digest(reader));
  }
  const bool bounded = info.sections.size() <= kMaxSections && info.prekeys.size() <= kMaxPrekeys &&
                       std::isfinite(info.cost_seconds) && info.cost_seconds >= 0 && is_time(info.created);
  if (!reader.at_end() || !bounded || !check_meta(info.meta).ok()) {
    return corruption("summary record " + id.hex() + ": bad lengths or meta");
  }
  return info;
}

std::string meta_value(const EntryInfo& info, const std::string& name) {
  const auto meta = nlohmann::json::parse(info.meta, nullptr, /*allow_exceptions=*/false);
  const auto value = meta.is_object() ? meta.find(name) : meta.end();
  if (value == meta.end() || value->is_null()) return {};
  return value->is_string() ? value->get<std::string>() : value->dump();
}

}  // namespace rekindle
