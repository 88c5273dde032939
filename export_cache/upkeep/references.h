// Which candidates lead to which entries, kept from both ends: a manifest names entries, a summary names the
// prekeys whose manifests name it. Parts of one update; nothing is visible before it commits.
#pragma once

#include <string_view>
#include <vector>

#include "export_cache/formats/manifest.h"
#include "export_cache/formats/object.h"
#include "export_cache/formats/summary.h"
#include "export_cache/formats/tombstones.h"
#include "export_cache/tiers/tier.h"
#include "export_cache/upkeep/usage.h"
#include "src/base/digest.h"
#include "src/base/result.h"

namespace rekindle {

// The pieces of one update that changes which entries there are.
struct Change {
  TierWriter& writer;
  Usage& usage;
  Tombstones& tombstones;
  std::int64_t now;  // unix seconds
};

// What an object says of itself.
struct ObjectParts {
  EntryInfo info;  // without prekeys and usage
  std::vector<Reference> references;
};
// kCorruption, naming what failed, unless it is sound and something leads to it. `created`: see EntryInfo.
Result<ObjectParts> take_apart(std::string_view object, std::int64_t created);

// Writes an object with its summary and its candidates, merged with what is there. Entries to which nothing
// leads any more leave (kReplaced).
Status put_object(Change& change, std::string_view object, ObjectParts parts);

// Removes the entry with all that is stored under its id, every candidate that leads to it, and leaves
// tombstones. No error when absent.
Status remove_entry(Change& change, const Digest& id, GoneReason reason);

// Counts entries and bytes anew, when their counters cannot be trusted.
Status recount(TierReader& view, Usage& usage);

// Forgets the usage of entries that are gone, which late journals bring back.
Status forget_unknown(TierWriter& writer, Usage& usage);

}  // namespace rekindle
