// CacheStats: what happened in a cache directory, over all processes since it was last cleared.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace rekindle {

struct CacheStats {
  std::uint64_t lookups = 0;         // calls of lookup
  std::uint64_t hits = 0;            // lookups that led to an entry in use (record_hit)
  std::uint64_t misses = 0;          // lookups that did not, yet: lookups - hits
  std::uint64_t corrupt = 0;         // records or whole databases that failed a check
  std::uint64_t stores = 0;          // entries published
  std::uint64_t store_failures = 0;  // entries that could not be published
  std::uint64_t evictions = 0;       // entries that left to keep the size bound
  std::uint64_t removals = 0;        // entries that left on request: remove, prune
  std::uint64_t bypasses = 0;        // calls that never asked the cache (record_bypass)
  std::map<std::string, std::uint64_t> bypass_codes{};
  double seconds_saved = 0;  // as told to record_hit
  std::uint64_t entries = 0;
  std::uint64_t pinned = 0;       // of the entries
  std::uint64_t bytes = 0;        // of the stored entries, compressed
  std::uint64_t disk_bytes = 0;   // blocks that the whole directory takes, quarantine included
  std::uint64_t limit_bytes = 0;  // CacheOptions::size_limit of the object that was asked

  // Adds what `more` counted of events, not its sizes.
  void add_events(const CacheStats& more);

  bool operator==(const CacheStats&) const = default;
};

}  // namespace rekindle
