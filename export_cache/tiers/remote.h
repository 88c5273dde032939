// Remote: the tiers behind the local cache, in the order in which they are asked.
//
//   REKINDLE_REMOTE := tier { ";" tier }*          tier := <scheme>://<place> [" ro"]
//
// With " ro" a tier is read and never written. A tier that fails three times in a row is left alone for the
// rest of the process; its first failure is one warning. Thread rule: all calls may come from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "export_cache/formats/manifest.h"
#include "export_cache/formats/object.h"
#include "export_cache/tiers/remote_tier.h"
#include "src/base/digest.h"
#include "src/base/result.h"

namespace rekindle {

// By this process.
struct RemoteStats {
  std::uint64_t lookups = 0;   // manifests asked for
  std::uint64_t hits = 0;      // objects that were here and sound
  std::uint64_t uploads = 0;   // objects published, counted for each tier
  std::uint64_t failures = 0;  // calls that a tier refused
  std::uint64_t corrupt = 0;   // manifests and objects that failed a check

  bool operator==(const RemoteStats&) const = default;
};

class Remote {
 public:
  // kInvalidArgument, naming what is wrong and the known schemes. Empty text: no tiers.
  static Result<std::unique_ptr<Remote>> parse(std::string_view text);
  ~Remote();

  bool empty() const { return tiers_.empty(); }
  // The candidates of all tiers, each entry once, newest first. What fails is counted and left out.
  std::vector<Candidate> lookup(const Digest& prekey);
  // The first sound object; std::nullopt when no tier has one.
  std::optional<std::string> load(const Digest& id);
  // To every tier that may be written: the object first, then the manifest that names it.
  void publish(std::string_view object, const Digest& id, const std::vector<Reference>& references);
  RemoteStats stats() const;

 private:
  struct Entry;
  Remote();

  Status publish_to(Entry& entry, std::string_view object, const Digest& id,
                    const std::vector<Reference>& references);
  Result<std::vector<Candidate>> read_manifest(Entry& entry, const Digest& prekey);
  // Counts a failure and opens the breaker when there are too many.
  void note(Entry& entry, const Status& status);

  std::vector<std::unique_ptr<Entry>> tiers_;
  std::atomic<std::uint64_t> lookups_ = 0, hits_ = 0, uploads_ = 0, failures_ = 0, corrupt_ = 0;
};

}  // namespace rekindle
