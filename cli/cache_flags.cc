#include "cli/cache_flags.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

namespace rekindle::cli {

void CacheFlags::declare(CLI::App& app) {
  app.add_option("--dir", dir, "Cache directory (default: REKINDLE_CACHE_DIR, else the user's cache)")
      ->type_name("DIR");
  app.add_flag("--json", json, "Print one JSON object");
}

std::string CacheFlags::directory() const { return dir.empty() ? default_cache_dir() : with_home(dir); }

Result<std::unique_ptr<ExportCache>> CacheFlags::open(CacheMode mode) const {
  const std::string chosen = directory();
  std::error_code unreadable;
  if (!std::filesystem::exists(chosen, unreadable)) {
    return not_found("there is no cache at " + chosen +
                     "; the first export makes one, or name another with --dir or REKINDLE_CACHE_DIR");
  }
  return ExportCache::open({.dir = chosen, .mode = mode});
}

Result<std::vector<Digest>> find_entries(ExportCache& cache, const std::vector<std::string>& prefixes) {
  std::vector<Digest> ids;
  for (const std::string& prefix : prefixes) {
    REKINDLE_ASSIGN_OR_RETURN(const Digest id, cache.find(prefix));
    if (std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
  }
  return ids;
}

Error corrupt_entry(const Digest& id) {
  return corruption("entry " + id.hex() + " is corrupt; the next training run exports it again");
}

Result<Entry> load_entry(ExportCache& cache, const Digest& id) {
  REKINDLE_ASSIGN_OR_RETURN(std::optional<Entry> entry, cache.load(id));
  if (entry) return *std::move(entry);
  return corrupt_entry(id);
}

Result<std::string> section_of(const Entry& entry, const Digest& id, const std::string& name) {
  if (const auto found = entry.sections.find(name); found != entry.sections.end()) return found->second;
  std::string names;
  for (const auto& [other, bytes] : entry.sections) names += (names.empty() ? "" : ", ") + other;
  return not_found("entry " + id.hex() + " has no section '" + name + "'; it has: " + names);
}

Json entry_json(const EntryInfo& info) {
  Json entry;
  entry["id"] = info.id.hex();
  entry["created"] = info.created;
  entry["last_used"] = info.last_used;
  entry["hits"] = info.hits;
  entry["seconds_saved"] = info.seconds_saved;
  entry["cost_seconds"] = info.cost_seconds;
  entry["pinned"] = info.pinned;
  entry["raw_bytes"] = info.raw_bytes;
  entry["stored_bytes"] = info.stored_bytes;
  entry["sections"] = Json::object();
  for (const auto& [name, size] : info.sections) entry["sections"][name] = size;
  entry["meta"] = Json::parse(info.meta);  // the store has checked it
  return entry;
}

std::string MetaText::operator[](const std::string& name) const {
  const auto value = meta_.find(name);
  if (value == meta_.end() || value->is_null()) return {};
  return value->is_string() ? value->get<std::string>() : value->dump();
}

void print_json(const Json& root) {
  std::puts(root.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
}

}  // namespace rekindle::cli
