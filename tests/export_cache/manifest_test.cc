#include "export_cache/formats/manifest.h"

#include <catch2/catch.hpp>
#include <string>

#include "export_cache/formats/record.h"

using namespace rekindle;

namespace {

const Digest kPrekey = digest_of("prekey");

Candidate candidate(int number, const std::string& observations) {
  return {digest_of("entry " + std::to_string(number)), observations, 1700000000 + number};
}

}  // namespace

TEST_CASE("a manifest comes back as it was", "[export_cache]") {
  const std::vector<Candidate> candidates = {candidate(2, std::string("\0b", 2)), candidate(1, "")};
  const auto record = encode_manifest(kPrekey, candidates);
  REQUIRE(record.ok());
  const auto back = decode_manifest(*record, kPrekey);
  REQUIRE(back.ok());
  REQUIRE(back->size() == 2);
  REQUIRE((*back)[0].entry == candidates[0].entry);
  REQUIRE((*back)[0].observations == candidates[0].observations);
  REQUIRE((*back)[1].created == candidates[1].created);
}

TEST_CASE("a manifest under another prekey or with wild counts is corruption", "[export_cache]") {
  const auto record = encode_manifest(kPrekey, {candidate(1, "a")});
  REQUIRE(!decode_manifest(*record, digest_of("other")).ok());
  for (const std::string& raw :
       {std::string(8, '\xFF'), std::string("\x01\0\0\0\0\0\0\0", 8), std::string()}) {
    const auto forged = decode_manifest(*encode_record(RecordKind::kManifest, kPrekey, raw), kPrekey);
    REQUIRE(!forged.ok());
    REQUIRE(forged.error().code == ErrorCode::kCorruption);
  }
}

TEST_CASE("a new candidate comes first and replaces its equal", "[export_cache]") {
  std::vector<Candidate> candidates = {candidate(1, "old"), candidate(2, "same")};
  REQUIRE(add_candidate(candidates, candidate(3, "same")) == std::vector<Digest>{candidate(2, "").entry});
  REQUIRE(candidates.size() == 2);
  REQUIRE(candidates[0].entry == candidate(3, "").entry);
  // Exported again to the same bytes: nothing is dropped.
  REQUIRE(add_candidate(candidates, candidate(3, "same")).empty());
}

TEST_CASE("the oldest candidate goes when a manifest is full", "[export_cache]") {
  std::vector<Candidate> candidates;
  std::vector<Digest> dropped;
  for (int i = 0; i < static_cast<int>(kMaxCandidates) + 1; ++i) {
    dropped = add_candidate(candidates, candidate(i, std::to_string(i)));
  }
  REQUIRE(candidates.size() == kMaxCandidates);
  REQUIRE(dropped == std::vector<Digest>{candidate(0, "").entry});
}
