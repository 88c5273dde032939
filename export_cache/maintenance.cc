// What people ask of a cache: the second half of ExportCache.
#include <algorithm>
#include <cctype>
#include <ctime>
#include <numeric>

#include "export_cache/export_cache.h"
#include "export_cache/formats/record.h"
#include "export_cache/guarded.h"
#include "export_cache/tiers/tier.h"
#include "export_cache/upkeep/checker.h"
#include "export_cache/upkeep/journal.h"
#include "export_cache/upkeep/references.h"
#include "src/base/log.h"

namespace rekindle {
namespace {

// Sorts positions, for the infos themselves are dear to move about.
std::vector<EntryInfo> newest_first(std::vector<EntryInfo> entries) {
  std::vector<std::size_t> order(entries.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](auto a, auto b) { return entries[a].created > entries[b].created; });
  std::vector<EntryInfo> sorted;
  sorted.reserve(entries.size());
  for (const std::size_t i : order) sorted.push_back(std::move(entries[i]));
  return sorted;
}

}  // namespace

Result<std::vector<EntryInfo>> ExportCache::read_listing(
    TierReader& view, const Usage& usage, std::vector<std::pair<Digest, std::string>>* unsound) {
  std::vector<EntryInfo> entries;
  REKINDLE_RETURN_IF_ERROR(view.for_each(Table::kSummary, [&](const Digest& id, std::string_view record) {
    auto info = decode_summary(record, id);
    if (!info.ok()) {
      if (unsound != nullptr) unsound->emplace_back(id, info.error().message);
      return;
    }
    if (const auto used = usage.entries.find(id); used != usage.entries.end()) {
      info->hits = used->second.hits;
      info->seconds_saved = used->second.seconds_saved;
      info->last_used = used->second.last_used;
      info->heat = used->second.heat;
    }
    entries.push_back(*std::move(info));
  }));
  REKINDLE_ASSIGN_OR_RETURN(const std::vector<Digest> pins, view.keys(Table::kPin));
  for (EntryInfo& info : entries) info.pinned = std::ranges::binary_search(pins, info.id);
  return newest_first(std::move(entries));
}

Result<std::vector<EntryInfo>> ExportCache::list() {
  return guarded("list", [&]() -> Result<std::vector<EntryInfo>> {
    std::vector<EntryInfo> entries;
    std::vector<std::pair<Digest, std::string>> unsound;
    REKINDLE_RETURN_IF_ERROR(tier_->read([&](TierReader& view) -> Status {
      unsound.clear();
      REKINDLE_ASSIGN_OR_RETURN(Usage usage, read_usage(view));
      merge_journals(journal_dir_, usage);
      REKINDLE_ASSIGN_OR_RETURN(entries, read_listing(view, usage, &unsound));
      return {};
    }));
    for (const auto& [id, what] : unsound) {
      record_corrupt(what);
      if (mode() == CacheMode::kReadWrite) REKINDLE_RETURN_IF_ERROR(erase_entry(id, GoneReason::kCorrupt));
    }
    return entries;
  });
}

Result<Digest> ExportCache::find(std::string_view prefix) {
  return guarded("find", [&]() -> Result<Digest> {
    std::string wanted(prefix);
    std::ranges::transform(wanted, wanted.begin(), [](unsigned char c) { return std::tolower(c); });
    if (wanted.empty() || wanted.size() > 32 ||
        wanted.find_first_not_of("0123456789abcdef") != std::string::npos) {
      return invalid_argument("entry id '" + std::string(prefix) + "' is not 1 to 32 hexadecimal digits");
    }
    std::vector<Digest> found;
    REKINDLE_RETURN_IF_ERROR(tier_->read([&](TierReader& view) -> Status {
      REKINDLE_ASSIGN_OR_RETURN(found, view.keys(Table::kSummary));
      return {};
    }));
    std::erase_if(found, [&](const Digest& id) { return !id.hex().starts_with(wanted); });
    if (found.size() == 1) return found.front();
    if (found.empty()) {
      return not_found("no entry '" + wanted + "' in " + dir() + "; list them with: rekindle cache ls");
    }
    return invalid_argument(std::to_string(found.size()) + " entries start with '" + wanted + "', such as " +
                            found[0].hex() + " and " + found[1].hex() + "; give more digits");
  });
}

Result<std::optional<Tombstone>> ExportCache::gone(const Digest& id_or_prekey) {
  return guarded("gone", [&]() -> Result<std::optional<Tombstone>> {
    std::optional<Tombstone> found;
    REKINDLE_RETURN_IF_ERROR(tier_->read([&](TierReader& view) -> Status {
      REKINDLE_ASSIGN_OR_RETURN(const Tombstones tombstones, read_tombstones(view));
      found = tombstones.find(id_or_prekey);
      return {};
    }));
    return found;
  });
}

Result<CacheStats> ExportCache::stats() {
  return guarded("stats", [&]() -> Result<CacheStats> {
    CacheStats stats;
    REKINDLE_RETURN_IF_ERROR(tier_->read([&](TierReader& view) -> Status {
      REKINDLE_ASSIGN_OR_RETURN(Usage usage, read_usage(view));
      merge_journals(journal_dir_, usage);
      stats = usage.counters;
      REKINDLE_ASSIGN_OR_RETURN(const std::vector<Digest> pins, view.keys(Table::kPin));
      stats.pinned = pins.size();
      return {};
    }));
    REKINDLE_ASSIGN_OR_RETURN(const TierStats tier, tier_->stats());
    stats.disk_bytes = tier.disk_bytes;
    stats.limit_bytes = options_.size_limit;
    const std::lock_guard guard(mutex_);
    stats.add_events(unwritten_.counters);
    stats.misses = stats.lookups - std::min(stats.lookups, stats.hits);
    return stats;
  });
}

Status ExportCache::erase_entry(const Digest& id, GoneReason reason) {
  return update([&](Change& change) { return remove_entry(change, id, reason); });
}

Status ExportCache::remove(const Digest& id) {
  return guarded("remove", [&]() -> Status {
    return update([&](Change& change) -> Status {
      REKINDLE_ASSIGN_OR_RETURN(const auto summary, change.writer.get(Table::kSummary, id));
      if (!summary) return not_found("no entry " + id.hex() + " in " + dir());
      ++change.usage.counters.removals;
      return remove_entry(change, id, GoneReason::kRemoved);
    });
  });
}

Status ExportCache::set_pin(const Digest& id, bool pinned) {
  return guarded("pin", [&]() -> Status {
    return update([&](Change& change) -> Status {
      REKINDLE_ASSIGN_OR_RETURN(const auto summary, change.writer.get(Table::kSummary, id));
      if (!summary) return not_found("no entry " + id.hex() + " in " + dir());
      if (!pinned) {
        change.writer.remove(Table::kPin, id);
        return {};
      }
      REKINDLE_ASSIGN_OR_RETURN(const std::string record, encode_record(RecordKind::kPin, id, ""));
      change.writer.put(Table::kPin, id, record);
      return {};
    });
  });
}

Status ExportCache::pin(const Digest& id) { return set_pin(id, true); }
Status ExportCache::unpin(const Digest& id) { return set_pin(id, false); }

Result<PruneReport> ExportCache::prune(const PrunePolicy& policy, bool dry_run) {
  return guarded("prune", [&]() -> Result<PruneReport> {
    if (!policy.selects())
      return invalid_argument("prune needs a policy, such as --max-size or --older-than");
    PruneReport report;
    report.dry_run = dry_run;
    REKINDLE_ASSIGN_OR_RETURN(const TierStats before, tier_->stats());
    report.disk_before = report.disk_after = before.disk_bytes;
    const auto plan = [&](TierReader& view, const Usage& usage) -> Status {
      REKINDLE_ASSIGN_OR_RETURN(const auto entries, read_listing(view, usage));
      report.plan = plan_prune(entries, policy, std::time(nullptr));
      report.bytes_before = report.bytes_after = 0;
      for (const EntryInfo& entry : entries) report.bytes_before += entry.stored_bytes;
      report.bytes_after = report.bytes_before;
      for (const PruneItem& item : report.plan.removed) report.bytes_after -= item.entry.stored_bytes;
      return {};
    };
    if (dry_run) {
      REKINDLE_RETURN_IF_ERROR(tier_->read([&](TierReader& view) -> Status {
        REKINDLE_ASSIGN_OR_RETURN(Usage usage, read_usage(view));
        merge_journals(journal_dir_, usage);
        return plan(view, usage);
      }));
      return report;
    }
    REKINDLE_RETURN_IF_ERROR(update([&](Change& change) -> Status {
      REKINDLE_RETURN_IF_ERROR(plan(change.writer, change.usage));
      change.usage.counters.removals += report.plan.removed.size();
      for (const PruneItem& item : report.plan.removed) {
        REKINDLE_RETURN_IF_ERROR(remove_entry(change, item.entry.id, GoneReason::kRemoved));
      }
      return {};
    }));
    REKINDLE_ASSIGN_OR_RETURN(const TierStats after, tier_->stats());
    report.disk_after = after.disk_bytes;
    return report;
  });
}

Status ExportCache::clear() {
  return guarded("clear", [&]() -> Status {
    Tombstones cleared;
    const auto bury = [&](TierReader& view) -> Status {
      REKINDLE_ASSIGN_OR_RETURN(cleared, read_tombstones(view));
      REKINDLE_ASSIGN_OR_RETURN(const auto entries, read_listing(view, Usage()));
      for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
        for (const Digest& prekey : entry->prekeys) {
          cleared.add({entry->id, prekey, GoneReason::kCleared, std::time(nullptr)});
        }
      }
      return {};
    };
    if (const Status status = tier_->read(bury); !status.ok()) log_debug(status.error().message);
    REKINDLE_RETURN_IF_ERROR(tier_->clear([&] {
      Usage gone;
      JournalFold(journal_dir_, gone).remove_files();
      clear_misses(misses_dir_);
      const std::lock_guard guard(mutex_);
      unwritten_ = Usage();
    }));
    if (cleared.all().empty()) return {};
    return update([&](Change& change) -> Status {
      change.tombstones = cleared;
      return {};
    });
  });
}

Result<VerifyReport> ExportCache::verify(const VerifyOptions& options) {
  return guarded("verify", [&]() -> Result<VerifyReport> {
    VerifyReport report;
    const auto check = [&](TierReader& view) -> Status {
      REKINDLE_ASSIGN_OR_RETURN(report, check_store(view, options));
      return {};
    };
    const auto repair_all = [&](Change& change) -> Status {
      REKINDLE_ASSIGN_OR_RETURN(report, repair(change, options));
      return {};
    };
    take_damage();  // what earlier calls met is over
    REKINDLE_RETURN_IF_ERROR(options.repair ? update(repair_all, {.reconcile = false}) : tier_->read(check));
    // A database that cannot be read looks like an empty one, in which nothing is wrong.
    if (const std::string damage = take_damage(); !damage.empty()) {
      const bool repaired = mode() == CacheMode::kReadWrite;
      report.problems.insert(report.problems.begin(),
                             {VerifyProblem::Kind::kDamagedDatabase, {}, damage, repaired});
    }
    return report;
  });
}

}  // namespace rekindle
