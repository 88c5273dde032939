// Which entries leave the cache, and why: to keep the size bound, or by the policy of `rekindle cache prune`.
// Pure functions over a listing; ExportCache carries them out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "export_cache/formats/summary.h"

namespace rekindle {

// Used or stored so few seconds ago, an entry is taken to be in use and stays.
inline constexpr std::int64_t kInUseSeconds = 600;

// An entry goes when one of the given criteria says so; with `model`, `not_torch` or `keep_last` alone, when
// they select it. Pinned entries and those in use stay.
struct PrunePolicy {
  std::string model{};                       // look only at entries of this model (meta "model"); empty: all
  std::optional<std::int64_t> older_than{};  // stored more than so many seconds ago
  std::optional<std::int64_t> unused_since{};  // neither used nor stored for so many seconds
  std::string not_torch{};  // made with another version of torch (meta "torch"); empty: not asked
  std::optional<std::size_t> keep_last{};  // spares the newest so many of each model from all other criteria
  std::optional<std::uint64_t>
      max_bytes{};  // then the least valuable, until the rest takes no more than that

  // False for one that would select nothing, or everything by accident.
  bool selects() const {
    return !model.empty() || older_than || unused_since || !not_torch.empty() || keep_last || max_bytes;
  }
};

struct PruneItem {
  EntryInfo entry;
  std::string why;  // "stored 40 days ago, the limit is 30 days"
};

struct PrunePlan {
  std::vector<PruneItem> removed;
  std::vector<PruneItem> spared;  // selected, but pinned, in use or among the last
};

struct PruneReport {
  PrunePlan plan;
  bool dry_run = false;
  std::uint64_t bytes_before = 0, bytes_after = 0;  // of the entries
  std::uint64_t disk_before = 0, disk_after = 0;    // of the directory; as before when dry_run
};

// Seconds that keeping the entry is expected to save, per byte: its cost, times how often it was asked for
// lately (storing it counts as once; every kHeatHalfLife without a use halves), over its size.
double value_per_byte(const EntryInfo& entry, std::int64_t now);

// What `policy` removes of `entries` at `now` (unix seconds; times ahead of it count as now). Least valuable
// or oldest first.
PrunePlan plan_prune(const std::vector<EntryInfo>& entries, const PrunePolicy& policy, std::int64_t now);

}  // namespace rekindle
