#include "export_cache/formats/manifest.h"

#include <algorithm>
#include <utility>

#include "export_cache/formats/record.h"
#include "src/base/bytes.h"

namespace rekindle {

Status check_observations(std::string_view observations) {
  if (observations.size() <= kMaxObservationBytes) return {};
  return invalid_argument("observations of " + std::to_string(observations.size()) +
                          " bytes are over the limit of " + std::to_string(kMaxObservationBytes) +
                          "; the export is not cached");
}

Result<std::string> encode_manifest(const Digest& prekey, const std::vector<Candidate>& candidates) {
  if (candidates.size() > kMaxCandidates) {
    return invalid_argument("manifest " + prekey.hex() + " has " + std::to_string(candidates.size()) +
                            " candidates");
  }
  ByteWriter writer;
  writer.number<std::uint64_t>(candidates.size());
  for (const Candidate& candidate : candidates) {
    REKINDLE_RETURN_IF_ERROR(check_observations(candidate.observations));
    writer.raw(candidate.entry.view());
    writer.number(candidate.created);
    writer.string(candidate.observations);
  }
  return encode_record(RecordKind::kManifest, prekey, writer.bytes());
}

Result<std::vector<Candidate>> decode_manifest(std::string_view record, const Digest& prekey) {
  REKINDLE_ASSIGN_OR_RETURN(const std::string raw, decode_record(record, RecordKind::kManifest, prekey));
  ByteReader reader(raw);
  const std::uint64_t count = reader.count(sizeof(Digest) + 2 * sizeof(std::uint64_t));
  if (reader.failed() || count > kMaxCandidates)
    return corruption("manifest record " + prekey.hex() + ": bad count");
  std::vector<Candidate> candidates(count);
  for (Candidate& candidate : candidates) {
    candidate.entry = read_digest(reader);
    candidate.created = reader.number<std::int64_t>();
    const std::string_view observations = reader.string();
    if (reader.failed() || observations.size() > kMaxObservationBytes || !is_time(candidate.created)) {
      return corruption("manifest record " + prekey.hex() + ": bad candidate");
    }
    candidate.observations = observations;
  }
  if (!reader.at_end())
    return corruption("manifest record " + prekey.hex() + ": bytes after the last candidate");
  return candidates;
}

std::vector<Digest> add_candidate(std::vector<Candidate>& candidates, Candidate added) {
  std::vector<Digest> dropped;
  std::erase_if(candidates, [&](const Candidate& old) {
    if (old.observations != added.observations) return false;
    if (old.entry != added.entry) dropped.push_back(old.entry);
    return true;
  });
  candidates.insert(candidates.begin(), std::move(added));
  while (candidates.size() > kMaxCandidates) {
    dropped.push_back(candidates.back().entry);
    candidates.pop_back();
  }
  return dropped;
}

}  // namespace rekindle
