#include "export_cache/export_cache.h"

#include <algorithm>
#include <cctype>
#include <ctime>
#include <exception>
#include <new>
#include <utility>

#include "export_cache/directory.h"
#include "export_cache/journal.h"
#include "export_cache/references.h"
#include "export_cache/tier.h"
#include "export_cache/tiers/rocksdb_tier.h"
#include "src/base/log.h"

namespace rekindle {
namespace {

// The boundary of the room: what the libraries below throw becomes an Error here.
template <typename Body>
auto guarded(const char* what, Body body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return io_error(std::string("out of memory in the export cache: ") + what);
  } catch (const std::exception& e) {
    return internal_error(std::string("export cache, ") + what + ": " + e.what());
  }
}

}  // namespace

ExportCache::ExportCache(CacheOptions options)
    : options_(std::move(options)),
      journal_dir_(options_.dir + "/journal"),
      tier_(make_rocksdb_tier({.dir = options_.dir,
                               .readonly = options_.mode == CacheMode::kReadOnly,
                               .lock_timeout = options_.lock_timeout,
                               .on_damage =
                                   [this](const std::string& reason) {
                                     record_corrupt("database in " + options_.dir + ": " + reason);
                                   }})),
      journal_(std::make_unique<Journal>(journal_dir_)) {}

ExportCache::~ExportCache() = default;

Result<std::unique_ptr<ExportCache>> ExportCache::open(CacheOptions options) {
  return guarded("open", [&]() -> Result<std::unique_ptr<ExportCache>> {
    if (options.dir.empty()) options.dir = default_cache_dir();
    REKINDLE_RETURN_IF_ERROR(prepare_directory(options.dir, options.mode));
    return std::unique_ptr<ExportCache>(new ExportCache(std::move(options)));
  });
}

void ExportCache::record(CacheEvent event) {
  event.time = std::time(nullptr);
  event.code.resize(std::min(event.code.size(), kMaxCodeBytes));
  const bool writable = options_.mode == CacheMode::kReadWrite;
  const Status written = writable ? journal_->append(event) : Status();
  if (writable && written.ok()) return;
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

void ExportCache::record_hit(const Digest& id, double seconds_saved) {
  record({.kind = EventKind::kHit, .entry = id, .seconds = seconds_saved});
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
  return lost;
}

Status ExportCache::update(const std::function<Status(TierWriter&, Usage&)>& change) {
  std::optional<JournalFold> fold;
  const auto transaction = [&](TierWriter& writer) -> Status {
    REKINDLE_ASSIGN_OR_RETURN(Usage usage, read_usage(writer));
    const std::size_t known = usage.entries.size();
    fold.reset();
    fold.emplace(journal_dir_, usage);
    if (usage.entries.size() > known) REKINDLE_RETURN_IF_ERROR(forget_unknown(writer, usage));
    REKINDLE_RETURN_IF_ERROR(change(writer, usage));
    REKINDLE_ASSIGN_OR_RETURN(const std::string record, encode_usage(usage));
    writer.put(Table::kUsage, Digest{}, record);
    return {};
  };
  return tier_->update(transaction, [&] { fold->remove_files(); });
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
      REKINDLE_RETURN_IF_ERROR(update([&](TierWriter& writer, Usage&) -> Status {
        writer.remove(Table::kManifest, prekey);
        return {};
      }));
    }
    return std::vector<Candidate>();
  });
}

Result<std::optional<Entry>> ExportCache::load(const Digest& id) {
  return guarded("load", [&]() -> Result<std::optional<Entry>> {
    std::optional<std::string> record;
    REKINDLE_RETURN_IF_ERROR(tier_->read([&](TierReader& view) -> Status {
      REKINDLE_ASSIGN_OR_RETURN(record, view.get(Table::kEntry, id));
      return {};
    }));
    if (!record) return std::optional<Entry>();
    auto entry = decode_entry(*record, id);
    if (entry.ok()) return std::optional<Entry>(*std::move(entry));
    record_corrupt(entry.error().message);
    if (mode() == CacheMode::kReadWrite) REKINDLE_RETURN_IF_ERROR(erase_entry(id));
    return std::optional<Entry>();
  });
}

Status ExportCache::publish(TierWriter& writer, Usage& usage, const Digest& prekey, const Candidate& added) {
  std::vector<Candidate> candidates;
  REKINDLE_ASSIGN_OR_RETURN(const std::optional<std::string> old, writer.get(Table::kManifest, prekey));
  if (old) {
    auto decoded = decode_manifest(*old, prekey);
    if (decoded.ok()) {
      candidates = *std::move(decoded);
    } else {
      usage.apply({.kind = EventKind::kCorrupt});
    }
  }
  const std::vector<Digest> dropped = add_candidate(candidates, added);
  REKINDLE_ASSIGN_OR_RETURN(const std::string manifest, encode_manifest(prekey, candidates));
  writer.put(Table::kManifest, prekey, manifest);
  usage.apply({.kind = EventKind::kStore});
  return remove_unreachable(writer, usage, dropped, prekey, candidates);
}

Result<Digest> ExportCache::store(const Digest& prekey, std::string observations, const Entry& entry) {
  Result<Digest> stored = guarded("store", [&]() -> Result<Digest> {
    REKINDLE_ASSIGN_OR_RETURN(const std::string record, encode_entry(entry));
    const std::int64_t now = std::time(nullptr);
    const EntryInfo info = make_info(entry, record.size(), now);
    REKINDLE_ASSIGN_OR_RETURN(const std::string summary, encode_summary(info));
    const Candidate added{info.id, std::move(observations), now};
    REKINDLE_RETURN_IF_ERROR(update([&](TierWriter& writer, Usage& usage) -> Status {
      REKINDLE_RETURN_IF_ERROR(publish(writer, usage, prekey, added));
      writer.put(Table::kEntry, info.id, record);
      writer.put(Table::kSummary, info.id, summary);
      return {};
    }));
    return info.id;
  });
  if (!stored.ok()) record({.kind = EventKind::kStoreFailure});
  return stored;
}

std::unique_ptr<Lease> ExportCache::lease(const Digest& prekey) const {
  return std::make_unique<Lease>(options_.dir, prekey);
}

Status ExportCache::erase_entry(const Digest& id) {
  return update([&](TierWriter& writer, Usage& usage) { return remove_entry(writer, usage, id); });
}

Result<std::vector<EntryInfo>> ExportCache::list() {
  return guarded("list", [&]() -> Result<std::vector<EntryInfo>> {
    std::vector<EntryInfo> entries;
    std::vector<std::pair<Digest, std::string>> corrupt;
    REKINDLE_RETURN_IF_ERROR(tier_->read([&](TierReader& view) -> Status {
      entries.clear();
      corrupt.clear();
      REKINDLE_ASSIGN_OR_RETURN(Usage usage, read_usage(view));
      merge_journals(journal_dir_, usage);
      return view.for_each(Table::kSummary, [&](const Digest& id, std::string_view record) {
        auto info = decode_summary(record, id);
        if (!info.ok()) {
          corrupt.emplace_back(id, info.error().message);
          return;
        }
        const EntryUsage& used = usage.entries[id];
        info->hits = used.hits;
        info->seconds_saved = used.seconds_saved;
        info->last_used = used.last_used;
        entries.push_back(*std::move(info));
      });
    }));
    for (const auto& [id, what] : corrupt) {
      record_corrupt(what);
      if (mode() == CacheMode::kReadWrite) REKINDLE_RETURN_IF_ERROR(erase_entry(id));
    }
    std::ranges::stable_sort(entries, [](const auto& a, const auto& b) { return a.created > b.created; });
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
    REKINDLE_RETURN_IF_ERROR(tier_->read([&](TierReader& view) {
      found.clear();
      return view.for_each(Table::kSummary, [&](const Digest& id, std::string_view) {
        if (id.hex().starts_with(wanted)) found.push_back(id);
      });
    }));
    if (found.size() == 1) return found.front();
    if (found.empty()) {
      return not_found("no entry '" + wanted + "' in " + dir() + "; list them with: rekindle cache ls");
    }
    return invalid_argument(std::to_string(found.size()) + " entries start with '" + wanted + "', such as " +
                            found[0].hex() + " and " + found[1].hex() + "; give more digits");
  });
}

Status ExportCache::remove(const Digest& id) {
  return guarded("remove", [&]() -> Status {
    return update([&](TierWriter& writer, Usage& usage) -> Status {
      REKINDLE_ASSIGN_OR_RETURN(const auto summary, writer.get(Table::kSummary, id));
      if (!summary) return not_found("no entry " + id.hex() + " in " + dir());
      return remove_entry(writer, usage, id);
    });
  });
}

Status ExportCache::clear() {
  return guarded("clear", [&]() -> Status {
    return tier_->clear([&] {
      Usage gone;
      JournalFold(journal_dir_, gone).remove_files();
      const std::lock_guard guard(mutex_);
      unwritten_ = Usage();
    });
  });
}

Result<CacheStats> ExportCache::stats() {
  return guarded("stats", [&]() -> Result<CacheStats> {
    CacheStats stats;
    REKINDLE_RETURN_IF_ERROR(tier_->read([&](TierReader& view) -> Status {
      REKINDLE_ASSIGN_OR_RETURN(Usage usage, read_usage(view));
      merge_journals(journal_dir_, usage);
      stats = usage.counters;
      return view.for_each(Table::kSummary, [&](const Digest& id, std::string_view record) {
        ++stats.entries;
        if (const auto info = decode_summary(record, id); info.ok()) stats.bytes += info->stored_bytes;
      });
    }));
    REKINDLE_ASSIGN_OR_RETURN(const TierStats tier, tier_->stats());
    stats.disk_bytes = tier.disk_bytes;
    const std::lock_guard guard(mutex_);
    const CacheStats& more = unwritten_.counters;
    stats.lookups += more.lookups;
    stats.hits += more.hits;
    stats.corrupt += more.corrupt;
    stats.stores += more.stores;
    stats.store_failures += more.store_failures;
    stats.bypasses += more.bypasses;
    stats.seconds_saved += more.seconds_saved;
    for (const auto& [code, count] : more.bypass_codes) stats.bypass_codes[code] += count;
    stats.misses = stats.lookups - std::min(stats.lookups, stats.hits);
    return stats;
  });
}

}  // namespace rekindle
