#include "export_cache/upkeep/references.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

namespace rekindle {
namespace {

// Std::nullopt when absent or unsound: list and verify meet unsound ones.
Result<std::optional<EntryInfo>> read_summary(TierReader& view, const Digest& id) {
  REKINDLE_ASSIGN_OR_RETURN(const std::optional<std::string> record, view.get(Table::kSummary, id));
  if (!record) return std::optional<EntryInfo>();
  auto info = decode_summary(*record, id);
  return info.ok() ? std::optional<EntryInfo>(*std::move(info)) : std::nullopt;
}

// Empty when absent. An unsound manifest is counted and taken for empty.
Result<std::vector<Candidate>> read_manifest(Change& change, const Digest& prekey) {
  REKINDLE_ASSIGN_OR_RETURN(const std::optional<std::string> record,
                            change.writer.get(Table::kManifest, prekey));
  if (!record) return std::vector<Candidate>();
  auto candidates = decode_manifest(*record, prekey);
  if (candidates.ok()) return candidates;
  change.usage.apply({.kind = EventKind::kCorrupt});
  return std::vector<Candidate>();
}

Status write_summary(TierWriter& writer, const EntryInfo& info) {
  REKINDLE_ASSIGN_OR_RETURN(const std::string record, encode_summary(info));
  writer.put(Table::kSummary, info.id, record);
  return {};
}

Status write_manifest(TierWriter& writer, const Digest& prekey, const std::vector<Candidate>& candidates) {
  if (candidates.empty()) {
    writer.remove(Table::kManifest, prekey);
    return {};
  }
  REKINDLE_ASSIGN_OR_RETURN(const std::string record, encode_manifest(prekey, candidates));
  writer.put(Table::kManifest, prekey, record);
  return {};
}

// Whose manifests name the entry: all are asked when its summary cannot tell.
Result<std::vector<Digest>> prekeys_of(TierReader& view, const Digest& id) {
  REKINDLE_ASSIGN_OR_RETURN(const std::optional<EntryInfo> info, read_summary(view, id));
  if (info) return info->prekeys;
  std::vector<Digest> prekeys;
  REKINDLE_RETURN_IF_ERROR(
      view.for_each(Table::kManifest, [&](const Digest& prekey, std::string_view record) {
        const auto candidates = decode_manifest(record, prekey);
        const auto names_it = [&](const Candidate& candidate) { return candidate.entry == id; };
        if (candidates.ok() && std::ranges::any_of(*candidates, names_it)) prekeys.push_back(prekey);
      }));
  return prekeys;
}

// Entry `id` lost its candidate under `prekey`.
Status drop_reference(Change& change, const Digest& prekey, const Digest& id) {
  REKINDLE_ASSIGN_OR_RETURN(std::optional<EntryInfo> info, read_summary(change.writer, id));
  if (!info) return {};
  if (info->prekeys != std::vector<Digest>{prekey}) {
    std::erase(info->prekeys, prekey);
    return write_summary(change.writer, *info);
  }
  return remove_entry(change, id, GoneReason::kReplaced);
}

// The object with the references of the one that is there already.
Result<std::string> merged_object(const std::optional<std::string>& old, std::string_view object,
                                  const Digest& id, const std::vector<Reference>& references) {
  if (!old) return std::string(object);
  const auto older = decode_object_references(*old, id);
  if (!older.ok()) return std::string(object);
  REKINDLE_ASSIGN_OR_RETURN(const std::string_view record, entry_record_of(object));
  return encode_object(record, id, merge_references(references, *older));
}

// Writes the candidate under `prekey` and the summary `info` of its entry, merged with what was there.
Status add_reference(Change& change, const Digest& prekey, const Candidate& candidate, EntryInfo info) {
  REKINDLE_ASSIGN_OR_RETURN(std::vector<Candidate> candidates, read_manifest(change, prekey));
  const std::vector<Digest> dropped = add_candidate(candidates, candidate);
  REKINDLE_RETURN_IF_ERROR(write_manifest(change.writer, prekey, candidates));
  REKINDLE_ASSIGN_OR_RETURN(const std::optional<EntryInfo> old, read_summary(change.writer, info.id));
  CacheStats& counters = change.usage.counters;
  counters.entries += old ? 0 : 1;
  counters.bytes += info.stored_bytes - (old ? old->stored_bytes : 0);
  if (old) info.prekeys = old->prekeys;
  std::erase(info.prekeys, prekey);
  info.prekeys.push_back(prekey);
  if (info.prekeys.size() > kMaxPrekeys) info.prekeys.erase(info.prekeys.begin());
  REKINDLE_RETURN_IF_ERROR(write_summary(change.writer, info));
  for (const Digest& id : dropped) {
    const bool still_named = std::ranges::any_of(candidates, [&](const auto& c) { return c.entry == id; });
    if (!still_named) REKINDLE_RETURN_IF_ERROR(drop_reference(change, prekey, id));
  }
  return {};
}

}  // namespace

Result<ObjectParts> take_apart(std::string_view object, std::int64_t created) {
  REKINDLE_ASSIGN_OR_RETURN(const Digest id, object_id(object));
  REKINDLE_ASSIGN_OR_RETURN(const Entry entry, decode_object_entry(object, id));
  ObjectParts parts;
  REKINDLE_ASSIGN_OR_RETURN(parts.references, decode_object_references(object, id));
  if (parts.references.empty()) return corruption("entry " + id.hex() + " names nothing that leads to it");
  parts.info = make_info(entry, object.size(), created);
  return parts;
}

Status put_object(Change& change, std::string_view object, ObjectParts parts) {
  const Digest id = parts.info.id;
  REKINDLE_ASSIGN_OR_RETURN(const std::optional<std::string> old, change.writer.get(Table::kEntry, id));
  REKINDLE_ASSIGN_OR_RETURN(const std::string merged, merged_object(old, object, id, parts.references));
  if (old != merged) change.writer.put(Table::kEntry, id, merged);
  parts.info.stored_bytes = merged.size();
  std::ranges::reverse(parts.references);  // oldest first, so that the newest candidate comes to lie in front
  for (Reference& reference : parts.references) {
    const Candidate candidate{id, std::move(reference.observations), reference.created};
    REKINDLE_RETURN_IF_ERROR(add_reference(change, reference.prekey, candidate, parts.info));
  }
  return {};
}

Status remove_entry(Change& change, const Digest& id, GoneReason reason) {
  REKINDLE_ASSIGN_OR_RETURN(const std::vector<Digest> prekeys, prekeys_of(change.writer, id));
  for (const Digest& prekey : prekeys) {
    REKINDLE_ASSIGN_OR_RETURN(std::vector<Candidate> candidates, read_manifest(change, prekey));
    change.tombstones.add({id, prekey, reason, change.now});
    if (std::erase_if(candidates, [&](const Candidate& found) { return found.entry == id; }) == 0) continue;
    REKINDLE_RETURN_IF_ERROR(write_manifest(change.writer, prekey, candidates));
  }
  if (prekeys.empty()) change.tombstones.add({id, Digest{}, reason, change.now});
  REKINDLE_ASSIGN_OR_RETURN(const std::optional<EntryInfo> info, read_summary(change.writer, id));
  change.writer.remove(Table::kEntry, id);
  change.writer.remove(Table::kSummary, id);
  change.writer.remove(Table::kPin, id);
  change.writer.remove(Table::kLeaves, id);
  change.usage.entries.erase(id);
  if (!info) return recount(change.writer, change.usage);
  --change.usage.counters.entries;
  change.usage.counters.bytes -= info->stored_bytes;
  return {};
}

Status recount(TierReader& view, Usage& usage) {
  usage.counters.entries = usage.counters.bytes = 0;
  return view.for_each(Table::kSummary, [&](const Digest& id, std::string_view record) {
    const auto info = decode_summary(record, id);
    if (!info.ok()) return;
    ++usage.counters.entries;
    usage.counters.bytes += info->stored_bytes;
  });
}

Status forget_unknown(TierWriter& writer, Usage& usage) {
  for (auto it = usage.entries.begin(); it != usage.entries.end();) {
    REKINDLE_ASSIGN_OR_RETURN(const auto summary, writer.get(Table::kSummary, it->first));
    it = summary ? std::next(it) : usage.entries.erase(it);
  }
  return {};
}

}  // namespace rekindle
