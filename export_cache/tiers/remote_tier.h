// RemoteTier: a place beyond the local cache, which others share: three
// verbs over content that everybody checks.
//
// Layout, on a path or below a URL, the one that bazel-remote and plain web servers offer:
//   ac/<prekey>     a manifest record, export_cache/formats/manifest.h: may be replaced at any time
//   cas/<id>        an object, export_cache/formats/object.h: named by its content
//
// Nothing is locked and nothing is asserted about what others see when: a loser of a race has written equal
// bytes, or its candidate is missing from a manifest until somebody exports it again. Whoever reads verifies.
// Thread rule: all calls may come from any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "export_cache/formats/record.h"
#include "src/base/concat.h"
#include "src/base/digest.h"
#include "src/base/registry.h"
#include "src/base/result.h"

namespace rekindle {

// Bounds what a tier reads under one name, in bytes: no record and no object is larger.
inline constexpr std::uint64_t kMostStoredBytes = 2 * (kMaxRawBytes + kRecordOverhead);

class RemoteTier {
 public:
  enum class Space { kManifests, kObjects };

  virtual ~RemoteTier() = default;
  // std::nullopt when there is none. kIo when the tier cannot be asked.
  virtual Result<std::optional<std::string>> get(Space space, const Digest& key) = 0;
  // Replaces what is there; a reader sees the old bytes or the new ones. kIo when the tier cannot be written.
  virtual Status put(Space space, const Digest& key, std::string_view bytes) = 0;
};

// "ac" or "cas".
const char* space_name(RemoteTier::Space space);

// Makes a tier for what follows "<scheme>://"; does no I/O.
// kInvalidArgument when it is no place for this scheme.
using RemoteTierFactory = Result<std::unique_ptr<RemoteTier>> (*)(const std::string& place);

Registry<RemoteTierFactory>& remote_tiers();

// REKINDLE_TIER("file", make_directory_tier) beside the definition of the factory.
#define REKINDLE_TIER(scheme, factory)                             \
  static const bool REKINDLE_CONCAT(rekindle_tier_, __COUNTER__) = \
      (::rekindle::remote_tiers().add(scheme, factory), true)

}  // namespace rekindle
