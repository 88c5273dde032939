// Which candidates lead to which entries, kept from both ends: a manifest names entries, a summary names the prekeys
// whose manifests name it. Parts of one update; nothing is visible before it commits.
#pragma once

#include <string_view>

#include "export_cache/manifest.h"
#include "export_cache/summary.h"
#include "export_cache/tier.h"
#include "export_cache/tombstones.h"
#include "export_cache/usage.h"
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

// Writes an object with its summary and its candidates, merged with what is there. `created` is for the summary.
// Entries to which nothing leads any more leave (kReplaced). kCorruption, and nothing changed, when it is not sound.
Status put_object(Change& change, std::string_view object, std::int64_t created);

// Removes the entry with all that is stored under its id, every candidate that leads to it, and leaves tombstones.
// No error when absent.
Status remove_entry(Change& change, const Digest& id, GoneReason reason);

// Counts entries and bytes anew, when their counters cannot be trusted.
Status recount(TierReader& view, Usage& usage);

// Forgets the usage of entries that are gone, which late journals bring back.
Status forget_unknown(TierWriter& writer, Usage& usage);

}  // namespace rekindle
