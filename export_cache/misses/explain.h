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

struct NearestEntry {
  Digest id;
  std::int64_t created = 0;  // unix seconds
  Similarity similarity;
  LeafTree leaves;
};

// Among the newest entries of the model `tree.model`, the one most similar to `tree`, the newest of equals;
// `except` is passed over. std::nullopt when the cache has none.
Result<std::optional<NearestEntry>> find_nearest(ExportCache& cache, const LeafTree& tree,
                                                 const Digest& except = {});

}  // namespace rekindle
