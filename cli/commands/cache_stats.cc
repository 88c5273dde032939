#include "cli/cache_flags.h"
#include "cli/command.h"
#include "cli/table.h"

namespace rekindle::cli {
namespace {

Json stats_json(const std::string& dir, const CacheStats& stats) {
  Json root;
  root["dir"] = dir;
  root["lookups"] = stats.lookups;
  root["hits"] = stats.hits;
  root["misses"] = stats.misses;
  root["corrupt"] = stats.corrupt;
  root["stores"] = stats.stores;
  root["store_failures"] = stats.store_failures;
  root["evictions"] = stats.evictions;
  root["removals"] = stats.removals;
  root["bypasses"] = stats.bypasses;
  root["bypass_codes"] = stats.bypass_codes;
  root["seconds_saved"] = stats.seconds_saved;
  root["entries"] = stats.entries;
  root["pinned"] = stats.pinned;
  root["bytes"] = stats.bytes;
  root["limit_bytes"] = stats.limit_bytes;
  root["disk_bytes"] = stats.disk_bytes;
  return root;
}

std::string limit_text(std::uint64_t bytes) { return bytes == 0 ? "none" : size_text(bytes); }

void print_human(const std::string& dir, const CacheStats& stats) {
  std::vector<std::vector<std::string>> rows = {
      {"directory", dir},
      {"entries", std::to_string(stats.entries) + ", pinned " + std::to_string(stats.pinned)},
      {"bytes", size_text(stats.bytes) + ", limit " + limit_text(stats.limit_bytes) + ", on disk " +
                    size_text(stats.disk_bytes)},
      {"lookups", std::to_string(stats.lookups)},
      {"hits", std::to_string(stats.hits) + ", saved " + seconds_text(stats.seconds_saved)},
      {"misses", std::to_string(stats.misses)},
      {"stores", std::to_string(stats.stores) + ", failed " + std::to_string(stats.store_failures)},
      {"evicted", std::to_string(stats.evictions) + ", removed " + std::to_string(stats.removals)},
      {"corrupt", std::to_string(stats.corrupt)},
      {"bypasses", std::to_string(stats.bypasses)}};
  for (const auto& [code, count] : stats.bypass_codes) rows.push_back({"  " + code, std::to_string(count)});
  print_table(rows);
}

class CacheStatistics : public Command {
 public:
  void declare(CLI::App& app) override { flags_.declare(app); }

  int run() override {
    auto cache = flags_.open(CacheMode::kReadOnly);
    if (!cache.ok()) return fail(cache.error());
    auto stats = (*cache)->stats();
    if (!stats.ok()) return fail(stats.error());
    if (flags_.json) {
      print_json(stats_json((*cache)->dir(), *stats));
    } else {
      print_human((*cache)->dir(), *stats);
    }
    return kExitOk;
  }

 private:
  CacheFlags flags_;
};

REKINDLE_COMMAND(cache, stats, "Show counters: hits, misses, seconds saved, bytes", CacheStatistics);

}  // namespace
}  // namespace rekindle::cli
