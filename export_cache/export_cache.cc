#include "export_cache/export_cache.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "export_cache/files/directory.h"
#include "export_cache/files/format.h"
#include "export_cache/formats/object.h"
#include "export_cache/formats/record.h"
#include "export_cache/guarded.h"
#include "export_cache/tiers/rocksdb_tier.h"
#include "export_cache/tiers/tier.h"
#include "export_cache/upkeep/checker.h"
#include "export_cache/upkeep/journal.h"
#include "export_cache/upkeep/references.h"
#include "src/base/log.h"

namespace rekindle {
namespace {

const VerifyOptions kIndexOnly{.depth = VerifyOptions::Depth::kQuick};

template <typename T>
Status status_of(const Result<T>& result) {
  return result.ok() ? Status() : Status(result.error());
}

}  // namespace

ExportCache::ExportCache(CacheOptions options, std::unique_ptr<Remote> remote)
    : options_(std::move(options)),
      journal_dir_(options_.dir + "/journal"),
      misses_dir_(options_.dir + "/misses"),
      tier_(make_rocksdb_tier({.dir = options_.dir,
                               .readonly = options_.mode == CacheMode::kReadOnly,
                               .lock_timeout = options_.lock_timeout,
                               .on_damage = [this](const std::string& reason) { record_damage(reason); },
                               .restore = [this](TierWriter& writer) { return restore(writer); }})),
      journal_(std::make_unique<Journal>(journal_dir_)),
      remote_(std::move(remote)) {}

ExportCache::~ExportCache() { wait_for_backfill(); }

Result<std::unique_ptr<ExportCache>> ExportCache::open(CacheOptions options) {
  return guarded("open", [&]() -> Result<std::unique_ptr<ExportCache>> {
    if (options.dir.empty()) options.dir = default_cache_dir();
    REKINDLE_RETURN_IF_ERROR(follow_link(options));
    keep_database_local(options);
    REKINDLE_ASSIGN_OR_RETURN(auto remote, Remote::parse(options.remote));
    REKINDLE_ASSIGN_OR_RETURN(options.mode, prepare_directory(options));
    REKINDLE_RETURN_IF_ERROR(check_format(options.dir, options.mode == CacheMode::kReadWrite));
    std::unique_ptr<ExportCache> cache(new ExportCache(std::move(options), std::move(remote)));
    cache->maintain();
    return cache;
  });
}

void ExportCache::maintain() {
  constexpr std::size_t kMostFiles = 64;
  constexpr std::uint64_t kMostBytes = 1 << 20;
  if (mode() == CacheMode::kReadOnly) return;
  const bool full = options_.size_limit > 0 && tier_->note() > options_.size_limit;
  const JournalLoad load = journal_load(journal_dir_);
  if (!full && load.files <= kMostFiles && load.bytes <= kMostBytes) return;
  const Status status = guarded(
      "maintain", [&] { return update([this](Change& change) { return evict(change); }, {.wait = false}); });
  if (!status.ok()) log_debug("the cache is tidied up another time: " + status.error().message);
}

void ExportCache::record(CacheEvent event) {
  event.time = std::time(nullptr);
  event.code.resize(std::min(event.code.size(), kMaxCodeBytes));
  const bool writable = options_.mode == CacheMode::kReadWrite;
  const Status written = writable ? journal_->append(event) : Status();
  // A process that only hits never stores, and so has to look after its journals itself.
  constexpr std::uint32_t kEventsBetweenLooks = 4096;
  if (writable && written.ok()) {
    if (++appended_ % kEventsBetweenLooks == 0) maintain();
    return;
  }
  const std::lock_guard guard(mutex_);
  unwritten_.apply(event);
  if (!writable || std::exchange(warned_, true)) return;
  log_warning("cache statistics are not kept: " + written.error().message);
}

void ExportCache::record_corrupt(const std::string& what) {
  record({.kind = EventKind::kCorrupt});
  const std::lock_guard guard(mutex_);
  if (std::exchange(warned_, true)) {
    log_debug("corrupt cache content: " + what);
  } else {
    log_warning("corrupt cache content is dropped and exported again: " + what);
  }
}

void ExportCache::record_damage(const std::string& reason) {
  record_corrupt("database in " + options_.dir + ": " + reason);
  const std::lock_guard guard(mutex_);
  damage_ = reason;
}

std::string ExportCache::take_damage() {
  const std::lock_guard guard(mutex_);
  return std::exchange(damage_, {});
}

void ExportCache::record_hit(const Digest& id, double seconds_saved) {
  record({.kind = EventKind::kHit, .entry = id, .seconds = is_amount(seconds_saved) ? seconds_saved : 0});
}

void ExportCache::record_bypass(std::string_view code) {
  record({.kind = EventKind::kBypass, .code = std::string(code)});
}

Result<Usage> ExportCache::read_usage(TierReader& view) {
  REKINDLE_ASSIGN_OR_RETURN(const std::optional<std::string> record, view.get(Table::kUsage, Digest{}));
  if (!record) return Usage{};
  Result<Usage> usage = decode_usage(*record);
  if (usage.ok()) return usage;
  Usage lost;
  lost.apply({.kind = EventKind::kCorrupt});
  REKINDLE_RETURN_IF_ERROR(recount(view, lost));
  return lost;
}

Result<Tombstones> ExportCache::read_tombstones(TierReader& view) {
  REKINDLE_ASSIGN_OR_RETURN(const std::optional<std::string> record, view.get(Table::kTombstones, Digest{}));
  if (!record) return Tombstones{};
  Result<Tombstones> tombstones = decode_tombstones(*record);
  return tombstones.ok() ? tombstones : Tombstones{};  // they only explain; verify reports the damage
}

// After a kill, a damaged database, or a file that somebody deleted, records and entries may not match. What
// has no entry leaves; an entry that has no record gets one again, for it names all that leads to it.
Status ExportCache::reconcile(Change& change) {
  REKINDLE_ASSIGN_OR_RETURN(const std::vector<Digest> objects, change.writer.keys(Table::kEntry));
  if (objects.size() == change.usage.counters.entries) return {};
  REKINDLE_RETURN_IF_ERROR(recount(change.writer, change.usage));
  if (objects.size() == change.usage.counters.entries) return {};
  return status_of(repair(change, kIndexOnly));
}

Result<VerifyReport> ExportCache::repair(Change& change, const VerifyOptions& options) {
  REKINDLE_ASSIGN_OR_RETURN(VerifyReport report, check_store(change.writer, options));
  for (VerifyProblem& problem : report.problems) {
    log_debug("repairing the cache: " + problem.what);
    REKINDLE_RETURN_IF_ERROR(repair_problem(change, problem));
  }
  REKINDLE_RETURN_IF_ERROR(recount(change.writer, change.usage));
  return report;
}

Status ExportCache::transact(TierWriter& writer, Usage& usage, const ChangeFunction& change) {
  REKINDLE_ASSIGN_OR_RETURN(Tombstones tombstones, read_tombstones(writer));
  const Tombstones before = tombstones;
  Change pieces{writer, usage, tombstones, std::time(nullptr)};
  REKINDLE_RETURN_IF_ERROR(change(pieces));
  REKINDLE_ASSIGN_OR_RETURN(const std::string record, encode_usage(usage));
  writer.put(Table::kUsage, Digest{}, record);
  writer.note(usage.counters.bytes);
  if (tombstones.all() == before.all()) return {};
  REKINDLE_ASSIGN_OR_RETURN(const std::string gone, encode_tombstones(tombstones));
  writer.put(Table::kTombstones, Digest{}, gone);
  return {};
}

Status ExportCache::update(const ChangeFunction& change, UpdateOptions how) {
  std::optional<JournalFold> fold;
  const auto transaction = [&](TierWriter& writer) -> Status {
    REKINDLE_ASSIGN_OR_RETURN(Usage usage, read_usage(writer));
    const std::size_t known = usage.entries.size();
    fold.reset();
    fold.emplace(journal_dir_, usage);
    if (usage.entries.size() > known) REKINDLE_RETURN_IF_ERROR(forget_unknown(writer, usage));
    return transact(writer, usage, [&](Change& pieces) -> Status {
      if (how.reconcile) REKINDLE_RETURN_IF_ERROR(reconcile(pieces));
      return change(pieces);
    });
  };
  return tier_->update(
      transaction, [&] { fold->remove_files(); },
      how.wait ? Tier::Patience::kWait : Tier::Patience::kDoNotWait);
}

Status ExportCache::restore(TierWriter& writer) {
  REKINDLE_ASSIGN_OR_RETURN(Usage usage, read_usage(writer));
  return transact(writer, usage, [&](Change& change) { return status_of(repair(change, kIndexOnly)); });
}

Result<std::vector<Candidate>> ExportCache::lookup(const Digest& prekey) {
  return guarded("lookup", [&]() -> Result<std::vector<Candidate>> {
    record({.kind = EventKind::kLookup});
    std::optional<std::string> record;
    REKINDLE_RETURN_IF_ERROR(tier_->read([&](TierReader& view) -> Status {
      REKINDLE_ASSIGN_OR_RETURN(record, view.get(Table::kManifest, prekey));
      return {};
    }));
    if (!record) return std::vector<Candidate>();
    auto candidates = decode_manifest(*record, prekey);
    if (candidates.ok()) return candidates;
    record_corrupt(candidates.error().message);
    if (mode() == CacheMode::kReadWrite) {
      REKINDLE_RETURN_IF_ERROR(update([&](Change& change) -> Status {
        change.writer.remove(Table::kManifest, prekey);
        return {};
      }));
    }
    return std::vector<Candidate>();
  });
}

Result<std::optional<Entry>> ExportCache::load(const Digest& id) {
  return guarded("load", [&]() -> Result<std::optional<Entry>> {
    std::optional<std::string> object;
    REKINDLE_RETURN_IF_ERROR(tier_->read([&](TierReader& view) -> Status {
      REKINDLE_ASSIGN_OR_RETURN(object, view.get(Table::kEntry, id));
      return {};
    }));
    if (!object) return load_remote(id);
    auto entry = decode_object_entry(*object, id);
    if (entry.ok()) return std::optional<Entry>(*std::move(entry));
    record_corrupt(entry.error().message);
    if (mode() == CacheMode::kReadWrite) {
      const GoneReason why = of_another_version(*object) ? GoneReason::kVersion : GoneReason::kCorrupt;
      REKINDLE_RETURN_IF_ERROR(erase_entry(id, why));
    }
    return load_remote(id);
  });
}

Result<Digest> ExportCache::store(const Digest& prekey, std::string observations, const Entry& entry) {
  Result<Digest> stored = guarded("store", [&]() -> Result<Digest> {
    REKINDLE_ASSIGN_OR_RETURN(const std::string record, encode_entry(entry));
    const Digest id = entry_id(entry);
    const std::int64_t now = std::time(nullptr);
    std::string leaves;
    if (!entry.leaves.empty()) {
      REKINDLE_ASSIGN_OR_RETURN(leaves, encode_leaf_tree(id, entry.leaves));
    }
    const std::vector<Reference> references = {{prekey, now, std::move(observations)}};
    REKINDLE_ASSIGN_OR_RETURN(const std::string object, encode_object(record, id, references));
    const ObjectParts parts{make_info(entry, object.size(), now), references};
    REKINDLE_RETURN_IF_ERROR(update([&](Change& change) -> Status {
      REKINDLE_RETURN_IF_ERROR(put_object(change, object, parts));
      if (!leaves.empty()) change.writer.put(Table::kLeaves, id, leaves);
      change.usage.apply({.kind = EventKind::kStore});
      return evict(change);
    }));
    remote_->publish(object, id, references);
    return id;
  });
  if (!stored.ok()) record({.kind = EventKind::kStoreFailure});
  return stored;
}

std::unique_ptr<Lease> ExportCache::lease(const Digest& prekey) const {
  return std::make_unique<Lease>(options_.dir, prekey);
}

Status ExportCache::evict(Change& change) {
  if (options_.size_limit == 0 || change.usage.counters.bytes <= options_.size_limit) return {};
  const auto target = static_cast<std::uint64_t>(kLowWater * static_cast<double>(options_.size_limit));
  REKINDLE_ASSIGN_OR_RETURN(const auto entries, read_listing(change.writer, change.usage));
  for (const PruneItem& item : plan_prune(entries, {.max_bytes = target}, change.now).removed) {
    REKINDLE_RETURN_IF_ERROR(remove_entry(change, item.entry.id, GoneReason::kEvicted));
    ++change.usage.counters.evictions;
  }
  return {};
}

}  // namespace rekindle
