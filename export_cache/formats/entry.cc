#include "export_cache/formats/entry.h"

#include <nlohmann/json.hpp>

#include "export_cache/formats/record.h"
#include "src/base/bytes.h"

namespace rekindle {
namespace {

constexpr std::string_view kIdDomain = "rekindle.entry.1";

Error damaged(const Digest& id, const std::string& what) {
  return corruption("entry record " + id.hex() + ": " + what);
}

Result<Entry> parse_entry(std::string_view raw, const Digest& id) {
  ByteReader reader(raw);
  Entry entry;
  const std::string_view meta = reader.string();
  if (reader.failed() || !check_meta(meta).ok()) return damaged(id, "bad meta");
  entry.meta = meta;
  const std::uint64_t count = reader.count(2 * sizeof(std::uint64_t));
  if (reader.failed() || count > kMaxSections) return damaged(id, "bad section count");
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string_view name = reader.string();
    const std::string_view bytes = reader.string();
    const bool ascending = entry.sections.empty() || entry.sections.rbegin()->first < name;
    if (reader.failed() || name.empty() || name.size() > kMaxSectionName || !ascending) {
      return damaged(id, "bad section " + std::to_string(i));
    }
    entry.sections.emplace_hint(entry.sections.end(), name, bytes);
  }
  if (!reader.at_end()) return damaged(id, "bytes after the last section");
  return entry;
}

// Accepts one JSON object of scalars without building it: a listing checks thousands.
struct FlatObject : nlohmann::json_sax<nlohmann::json> {
  std::string nested;  // the first key whose value is not a scalar

  bool null() override { return depth_ == 1; }
  bool boolean(bool) override { return depth_ == 1; }
  bool number_integer(number_integer_t) override { return depth_ == 1; }
  bool number_unsigned(number_unsigned_t) override { return depth_ == 1; }
  bool number_float(number_float_t, const string_t&) override { return depth_ == 1; }
  bool string(string_t&) override { return depth_ == 1; }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return ++depth_ == 1 || reject(); }
  bool key(string_t& name) override {
    key_.swap(name);
    return true;
  }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override { return depth_ == 1 ? reject() : false; }
  bool end_array() override { return false; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  bool reject() {
    nested = key_;
    return false;
  }
  int depth_ = 0;
  std::string key_;
};

}  // namespace

Digest entry_id(const Entry& entry) {
  DigestStream stream;
  stream.update(kIdDomain);
  for (const auto& [name, bytes] : entry.sections) {
    ByteWriter head;
    head.string(name);
    head.number<std::uint64_t>(bytes.size());
    stream.update(head.bytes());
    stream.update(bytes);
  }
  return stream.finish();
}

Status check_meta(std::string_view meta) {
  if (meta.size() > kMaxMetaBytes) {
    return invalid_argument("entry meta of " + std::to_string(meta.size()) + " bytes is over the limit of " +
                            std::to_string(kMaxMetaBytes));
  }
  FlatObject flat;
  if (nlohmann::json::sax_parse(meta, &flat)) return {};
  if (flat.nested.empty()) return invalid_argument("entry meta is not a JSON object");
  return invalid_argument("entry meta '" + flat.nested + "' is not a scalar; pass it as text");
}

Status check_entry(const Entry& entry) {
  REKINDLE_RETURN_IF_ERROR(check_meta(entry.meta));
  if (entry.sections.size() > kMaxSections) {
    return invalid_argument("entry has " + std::to_string(entry.sections.size()) +
                            " sections, the limit is " + std::to_string(kMaxSections));
  }
  std::uint64_t total = entry.meta.size();
  for (const auto& [name, bytes] : entry.sections) {
    if (name.empty() || name.size() > kMaxSectionName) {
      return invalid_argument("section name '" + name + "' is not 1 to " + std::to_string(kMaxSectionName) +
                              " bytes");
    }
    total += bytes.size();
  }
  if (total > kMaxRawBytes) {
    return invalid_argument("entry of " + std::to_string(total) + " bytes is over the limit of " +
                            std::to_string(kMaxRawBytes) + "; it is not cached");
  }
  return {};
}

Result<std::string> encode_entry(const Entry& entry) {
  REKINDLE_RETURN_IF_ERROR(check_entry(entry));
  ByteWriter writer;
  writer.string(entry.meta);
  writer.number<std::uint64_t>(entry.sections.size());
  for (const auto& [name, bytes] : entry.sections) {
    writer.string(name);
    writer.string(bytes);
  }
  return encode_record(RecordKind::kEntry, entry_id(entry), writer.bytes());
}

Result<Entry> decode_entry(std::string_view record, const Digest& expected) {
  REKINDLE_ASSIGN_OR_RETURN(const std::string raw, decode_record(record, RecordKind::kEntry, expected));
  REKINDLE_ASSIGN_OR_RETURN(Entry entry, parse_entry(raw, expected));
  if (entry_id(entry) != expected) return damaged(expected, "its sections have another digest");
  return entry;
}

}  // namespace rekindle
