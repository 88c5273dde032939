// Why a call missed, or how two entries differ: finds what to compare with, and compares.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "export_cache/export_cache.h"
#include "export_cache/formats/leaf_tree.h"
#include "export_cache/misses/differences.h"
#include "src/base/digest.h"
#include "src/base/result.h"

namespace rekindle {

// So many of a model's newest entries are looked at.
inline constexpr std::size_t kMaxCompared = 16;

struct StoredLeaves {
  Digest entry;
  std::int64_t created = 0;  // unix seconds
  LeafTree leaves;           // not empty
};

// Holds what a lookup is explained with; see ExportCache::facts.
struct LookupFacts {
  std::vector<Candidate> candidates;   // as of ExportCache::lookup
  std::optional<Tombstone> gone;       // of the prekey, as of ExportCache::gone
  std::vector<StoredLeaves> of_model;  // of its kMaxCompared newest entries, newest first
};

struct NearestEntry {
  Digest id;
  std::int64_t created = 0;  // unix seconds
  Similarity similarity;
  LeafTree leaves;
};

// The one of `entries` that is most similar to `tree`, the first of equals; std::nullopt of none.
std::optional<NearestEntry> nearest_of(const std::vector<StoredLeaves>& entries, const LeafTree& tree);

// Among the newest entries of the model `tree.model`, the one most similar to `tree`, the newest of equals;
// `except` is passed over. std::nullopt when the cache has none.
Result<std::optional<NearestEntry>> find_nearest(ExportCache& cache, const LeafTree& tree,
                                                 const Digest& except = {});

}  // namespace rekindle
