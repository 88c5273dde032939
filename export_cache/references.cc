#include "export_cache/references.h"

#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace rekindle {
namespace {

using Manifests = std::map<Digest, std::vector<Candidate>>;

// All sound manifests; unsound ones are removed when a lookup meets them.
Result<Manifests> read_manifests(TierReader& view) {
  Manifests manifests;
  REKINDLE_RETURN_IF_ERROR(
      view.for_each(Table::kManifest, [&](const Digest& prekey, std::string_view record) {
        auto candidates = decode_manifest(record, prekey);
        if (candidates.ok()) manifests[prekey] = *std::move(candidates);
      }));
  return manifests;
}

void remove_records(TierWriter& writer, Usage& usage, const Digest& id) {
  writer.remove(Table::kEntry, id);
  writer.remove(Table::kSummary, id);
  usage.entries.erase(id);
}

}  // namespace

Status remove_entry(TierWriter& writer, Usage& usage, const Digest& id) {
  remove_records(writer, usage, id);
  REKINDLE_ASSIGN_OR_RETURN(Manifests manifests, read_manifests(writer));
  for (auto& [prekey, candidates] : manifests) {
    if (std::erase_if(candidates, [&](const Candidate& found) { return found.entry == id; }) == 0) continue;
    if (candidates.empty()) {
      writer.remove(Table::kManifest, prekey);
      continue;
    }
    REKINDLE_ASSIGN_OR_RETURN(const std::string record, encode_manifest(prekey, candidates));
    writer.put(Table::kManifest, prekey, record);
  }
  return {};
}

Status remove_unreachable(TierWriter& writer, Usage& usage, const std::vector<Digest>& dropped,
                          const Digest& prekey, const std::vector<Candidate>& kept) {
  if (dropped.empty()) return {};
  REKINDLE_ASSIGN_OR_RETURN(Manifests manifests, read_manifests(writer));
  manifests[prekey] = kept;
  std::set<Digest> reachable;
  for (const auto& [key, candidates] : manifests) {
    for (const Candidate& candidate : candidates) reachable.insert(candidate.entry);
  }
  for (const Digest& id : dropped) {
    if (!reachable.contains(id)) remove_records(writer, usage, id);
  }
  return {};
}

Status forget_unknown(TierWriter& writer, Usage& usage) {
  for (auto it = usage.entries.begin(); it != usage.entries.end();) {
    REKINDLE_ASSIGN_OR_RETURN(const auto summary, writer.get(Table::kSummary, it->first));
    it = summary ? std::next(it) : usage.entries.erase(it);
  }
  return {};
}

}  // namespace rekindle
