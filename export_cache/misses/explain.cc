#include "export_cache/misses/explain.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "export_cache/guarded.h"
#include "export_cache/tiers/tier.h"
#include "src/base/log.h"

namespace rekindle {
namespace {

bool is_of(const EntryInfo& info, const std::string& model) {
  const auto meta = nlohmann::json::parse(info.meta, nullptr, /*allow_exceptions=*/false);
  const auto found = meta.find("class");
  return found != meta.end() && found->is_string() && found->get_ref<const std::string&>() == model;
}

}  // namespace

Result<std::vector<LeafTree>> ExportCache::leaves(const std::vector<Digest>& ids) {
  return guarded("leaves", [&]() -> Result<std::vector<LeafTree>> {
    std::vector<std::optional<std::string>> records;
    REKINDLE_RETURN_IF_ERROR(tier_->read([&](TierReader& view) -> Status {
      records.clear();
      for (const Digest& id : ids) {
        REKINDLE_ASSIGN_OR_RETURN(records.emplace_back(), view.get(Table::kLeaves, id));
      }
      return {};
    }));
    std::vector<LeafTree> trees(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (!records[i]) continue;
      auto tree = decode_leaf_tree(*records[i], ids[i]);
      if (!tree.ok()) log_debug("an entry cannot be explained: " + tree.error().message);
      if (tree.ok()) trees[i] = *std::move(tree);
    }
    return trees;
  });
}

void ExportCache::record_miss(const Miss& miss) {
  if (mode() != CacheMode::kReadWrite) return;
  const Status logged = guarded("record_miss", [&] { return log_miss(misses_dir_, miss); });
  if (!logged.ok()) log_debug("a miss is not kept: " + logged.error().message);
}

std::vector<Miss> ExportCache::misses() const { return read_misses(misses_dir_); }

Result<std::optional<NearestEntry>> find_nearest(ExportCache& cache, const LeafTree& tree,
                                                 const Digest& except) {
  REKINDLE_ASSIGN_OR_RETURN(const std::vector<EntryInfo> entries, cache.list());
  std::vector<Digest> ids;
  std::vector<std::int64_t> created;
  for (const EntryInfo& info : entries) {
    if (ids.size() == kMaxCompared) break;
    if (info.id == except || !is_of(info, tree.model)) continue;
    ids.push_back(info.id);
    created.push_back(info.created);
  }
  std::optional<NearestEntry> nearest;
  if (ids.empty()) return nearest;
  REKINDLE_ASSIGN_OR_RETURN(std::vector<LeafTree> trees, cache.leaves(ids));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (trees[i].empty()) continue;
    const Similarity found = similarity(trees[i], tree);
    if (nearest && nearest->similarity.score >= found.score) continue;
    nearest = NearestEntry{ids[i], created[i], found, std::move(trees[i])};
  }
  return nearest;
}

}  // namespace rekindle
