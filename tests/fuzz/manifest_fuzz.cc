// Manifests: as a record, and as the content of a sound one.
#include "export_cache/formats/manifest.h"

#include "export_cache/formats/record.h"
#include "tests/fuzz/fuzz.h"

using namespace rekindle;

namespace {

const Digest kPrekey = digest_of("fuzz");

bool equal(const Candidate& a, const Candidate& b) {
  return a.entry == b.entry && a.created == b.created && a.observations == b.observations;
}

void check(std::string_view record) {
  auto candidates = decode_manifest(record, kPrekey);
  if (!candidates.ok()) return;
  const auto again = encode_manifest(kPrekey, *candidates);
  fuzz::require(again.ok(), "a manifest can be written again");
  const auto same = decode_manifest(*again, kPrekey);
  fuzz::require(
      same.ok() && std::equal(same->begin(), same->end(), candidates->begin(), candidates->end(), equal),
      "a manifest keeps its candidates");
  add_candidate(*candidates, {.entry = digest_of("new"), .observations = "new", .created = 1});
  fuzz::require(candidates->size() <= kMaxCandidates && encode_manifest(kPrekey, *candidates).ok(),
                "a candidate can be added");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fuzz::view(data, size);
  check(bytes);
  check(*encode_record(RecordKind::kManifest, kPrekey, bytes));
  return 0;
}
