#include "export_cache/misses/explain.h"

#include <algorithm>
#include <functional>
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

// The newest entries of a model, so many as are compared.
Result<std::vector<EntryInfo>> newest_of(TierReader& view, const std::string& model, const Digest& except) {
  std::vector<EntryInfo> found;
  REKINDLE_RETURN_IF_ERROR(view.for_each(Table::kSummary, [&](const Digest& id, std::string_view record) {
    auto info = decode_summary(record, id);
    if (info.ok() && info->id != except && is_of(*info, model)) found.push_back(*std::move(info));
  }));
  std::ranges::stable_sort(found, std::greater(), &EntryInfo::created);
  if (found.size() > kMaxCompared) found.resize(kMaxCompared);
  return found;
}

// Empty where nothing sound is stored.
LeafTree tree_of(const std::optional<std::string>& record, const Digest& id) {
  if (!record) return {};
  auto tree = decode_leaf_tree(*record, id);
  if (tree.ok()) return *std::move(tree);
  log_debug("an entry cannot be explained: " + tree.error().message);
  return {};
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
    for (std::size_t i = 0; i < ids.size(); ++i) trees[i] = tree_of(records[i], ids[i]);
    return trees;
  });
}

Result<LookupFacts> ExportCache::facts(const Digest& prekey, const std::string& model, const Digest& except) {
  return guarded("facts", [&]() -> Result<LookupFacts> {
    LookupFacts facts;
    std::optional<std::string> manifest;
    std::vector<EntryInfo> entries;
    std::vector<std::optional<std::string>> leaves;
    REKINDLE_RETURN_IF_ERROR(tier_->read([&](TierReader& view) -> Status {
      REKINDLE_ASSIGN_OR_RETURN(manifest, view.get(Table::kManifest, prekey));
      REKINDLE_ASSIGN_OR_RETURN(const Tombstones tombstones, read_tombstones(view));
      facts.gone = tombstones.find(prekey);
      REKINDLE_ASSIGN_OR_RETURN(entries, newest_of(view, model, except));
      leaves.clear();
      for (const EntryInfo& info : entries) {
        REKINDLE_ASSIGN_OR_RETURN(leaves.emplace_back(), view.get(Table::kLeaves, info.id));
      }
      return {};
    }));
    if (manifest) {
      auto candidates = decode_manifest(*manifest, prekey);
      if (candidates.ok()) facts.candidates = *std::move(candidates);  // else a lookup has dropped it
    }
    for (std::size_t i = 0; i < entries.size(); ++i) {
      LeafTree tree = tree_of(leaves[i], entries[i].id);
      if (!tree.empty()) facts.of_model.push_back({entries[i].id, entries[i].created, std::move(tree)});
    }
    return facts;
  });
}

void ExportCache::record_miss(const Miss& miss) {
  if (mode() != CacheMode::kReadWrite) return;
  const Status logged = guarded("record_miss", [&] { return log_miss(misses_dir_, miss); });
  if (!logged.ok()) log_debug("a miss is not kept: " + logged.error().message);
}

std::vector<Miss> ExportCache::misses() const { return read_misses(misses_dir_); }

std::optional<NearestEntry> nearest_of(const std::vector<StoredLeaves>& entries, const LeafTree& tree) {
  const StoredLeaves* nearest = nullptr;
  Similarity most;
  for (const StoredLeaves& stored : entries) {
    const Similarity found = similarity(stored.leaves, tree);
    if (nearest != nullptr && most.score >= found.score) continue;
    nearest = &stored;
    most = found;
  }
  if (nearest == nullptr) return std::nullopt;
  return NearestEntry{nearest->entry, nearest->created, most, nearest->leaves};
}

Result<std::optional<NearestEntry>> find_nearest(ExportCache& cache, const LeafTree& tree,
                                                 const Digest& except) {
  REKINDLE_ASSIGN_OR_RETURN(const LookupFacts facts, cache.facts(Digest{}, tree.model, except));
  return nearest_of(facts.of_model, tree);
}

}  // namespace rekindle
