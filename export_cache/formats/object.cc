#include "export_cache/formats/object.h"

#include <algorithm>

#include "export_cache/formats/manifest.h"
#include "export_cache/formats/record.h"
#include "export_cache/formats/summary.h"

namespace rekindle {

Result<std::string> encode_object(std::string_view entry_record, const Digest& id,
                                  std::vector<Reference> references) {
  references = merge_references(std::move(references), {});
  ByteWriter writer;
  writer.number<std::uint64_t>(references.size());
  for (const Reference& reference : references) {
    REKINDLE_RETURN_IF_ERROR(check_observations(reference.observations));
    writer.raw(reference.prekey.view());
    writer.number(reference.created);
    writer.string(reference.observations);
  }
  REKINDLE_ASSIGN_OR_RETURN(const std::string tail,
                            encode_record(RecordKind::kCandidates, id, writer.bytes()));
  return std::string(entry_record) + tail;
}

Result<std::string_view> entry_record_of(std::string_view object) {
  REKINDLE_ASSIGN_OR_RETURN(const std::size_t size, claimed_record_size(object));
  return object.substr(0, size);
}

Result<Digest> object_id(std::string_view object) { return claimed_record_key(object); }

Result<Entry> decode_object_entry(std::string_view object, const Digest& expected) {
  const auto record = entry_record_of(object);
  if (!record.ok()) return corruption("entry record " + expected.hex() + ": " + record.error().message);
  return decode_entry(*record, expected);
}

Result<std::vector<Reference>> decode_object_references(std::string_view object, const Digest& expected) {
  REKINDLE_ASSIGN_OR_RETURN(const std::string_view record, entry_record_of(object));
  REKINDLE_ASSIGN_OR_RETURN(const std::string raw,
                            decode_record(object.substr(record.size()), RecordKind::kCandidates, expected));
  ByteReader reader(raw);
  std::vector<Reference> references;
  for (std::uint64_t left = reader.count(sizeof(Digest) + 16); left > 0 && !reader.failed(); --left) {
    Reference reference;
    reference.prekey = read_digest(reader);
    reference.created = reader.number<std::int64_t>();
    const std::string_view observations = reader.string();
    const bool sound = observations.size() <= kMaxObservationBytes && is_time(reference.created);
    if (!sound || references.size() == kMaxPrekeys)
      return corruption("candidates record " + expected.hex() + ": out of bounds");
    reference.observations = observations;
    references.push_back(std::move(reference));
  }
  if (!reader.at_end()) return corruption("candidates record " + expected.hex() + ": bad lengths");
  return references;
}

Status check_object(std::string_view object, const Digest& expected) {
  REKINDLE_RETURN_IF_ERROR(decode_object_entry(object, expected));
  REKINDLE_RETURN_IF_ERROR(decode_object_references(object, expected));
  return {};
}

std::vector<Reference> merge_references(std::vector<Reference> a, const std::vector<Reference>& b) {
  for (const Reference& other : b) {
    const auto same = [&](const Reference& r) {
      return r.prekey == other.prekey && r.observations == other.observations;
    };
    if (std::ranges::none_of(a, same)) a.push_back(other);
  }
  std::ranges::stable_sort(a, [](const auto& x, const auto& y) { return x.created > y.created; });
  if (a.size() > kMaxPrekeys) a.resize(kMaxPrekeys);
  return a;
}

}  // namespace rekindle
