// Which entries the manifests lead to, and the removal of records without leaving a reference dangling. Parts
// of one update; nothing is visible before it commits.
#pragma once

#include <vector>

#include "export_cache/manifest.h"
#include "export_cache/tier.h"
#include "export_cache/usage.h"
#include "src/base/digest.h"
#include "src/base/result.h"

namespace rekindle {

// The entry with all that is stored under its id, and every candidate that leads to it. No error when absent.
Status remove_entry(TierWriter& writer, Usage& usage, const Digest& id);

// Removes the entries among `dropped` to which no manifest leads any more, where `kept` is the new state of
// the manifest of `prekey`.
Status remove_unreachable(TierWriter& writer, Usage& usage, const std::vector<Digest>& dropped,
                          const Digest& prekey, const std::vector<Candidate>& kept);

// Forgets the usage of entries that are gone, which late journals bring back.
Status forget_unknown(TierWriter& writer, Usage& usage);

}  // namespace rekindle
