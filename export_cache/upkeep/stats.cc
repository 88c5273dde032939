#include "export_cache/upkeep/stats.h"

namespace rekindle {

void CacheStats::add_events(const CacheStats& more) {
  lookups += more.lookups;
  hits += more.hits;
  corrupt += more.corrupt;
  stores += more.stores;
  store_failures += more.store_failures;
  evictions += more.evictions;
  removals += more.removals;
  bypasses += more.bypasses;
  for (const auto& [code, count] : more.bypass_codes) bypass_codes[code] += count;
  seconds_saved += more.seconds_saved;
}

}  // namespace rekindle
