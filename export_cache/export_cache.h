// ExportCache: a directory in which exports survive the process. Bytes in, bytes out.
//
// A lookup has two steps: a prekey, cheap to compute, leads to candidates with the observations of their
// exports; the caller picks the newest one whose observations all hold now and loads its entry. Nothing is
// trusted on the way back: what fails a check is counted, removed, and reported as absent.
//
// Thread rule: all methods may be called from any thread. Processes may share a directory on a local file
// system. Nothing is kept open between calls, so a cache may live across fork; a forked child may be refused
// (kUnsupported). Errors: no method throws. Besides what each method names: kIo when the system refuses or
// other processes hold the lock for longer than CacheOptions::lock_timeout, kInternal for a bug. After any
// error the cache is as before the call and the caller goes on without it. A read-only cache answers every
// method that would write with kUnsupported.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "export_cache/files/single_flight.h"
#include "export_cache/formats/bundle.h"
#include "export_cache/formats/entry.h"
#include "export_cache/formats/leaf_tree.h"
#include "export_cache/formats/manifest.h"
#include "export_cache/formats/summary.h"
#include "export_cache/formats/tombstones.h"
#include "export_cache/misses/miss_log.h"
#include "export_cache/options.h"
#include "export_cache/tiers/remote.h"
#include "export_cache/upkeep/prune.h"
#include "export_cache/upkeep/stats.h"
#include "export_cache/upkeep/usage.h"
#include "export_cache/upkeep/verify.h"
#include "src/base/digest.h"
#include "src/base/mutex.h"
#include "src/base/result.h"

namespace rekindle {

class Journal;
class Tier;
class TierReader;
class TierWriter;
struct Change;
struct LookupFacts;

class ExportCache {
 public:
  // Creates the directory (0700) unless read-only; dir() and mode() tell what is used in the end: see
  // follow_link, keep_database_local and prepare_directory in directory.h. kInvalidArgument when the
  // directory cannot be trusted or options.remote is wrong, kUnsupported when another Rekindle wrote it
  // (format.h). Opens no database, unless the cache is above its size limit or journals have piled up.
  static Result<std::unique_ptr<ExportCache>> open(CacheOptions options = {});
  ~ExportCache();

  const std::string& dir() const { return options_.dir; }
  CacheMode mode() const { return options_.mode; }

  // What a training process calls.

  // The candidates under `prekey`, newest first; empty when there are none. Counts a lookup.
  Result<std::vector<Candidate>> lookup(const Digest& prekey);
  // The candidates that the remote tiers have under `prekey`, newest first. To be asked when no local one
  // holds; empty without tiers, or when they fail (counted, one warning).
  Result<std::vector<Candidate>> lookup_remote(const Digest& prekey);
  // The verified entry, from here or else from a remote tier (it is then stored here in the background);
  // std::nullopt when there is none or when it was corrupt (counted, and removed unless read-only). Counts no
  // hit: see record_hit.
  Result<std::optional<Entry>> load(const Digest& id);
  // Publishes the entry and its candidate in one durable step, evicts when the cache is above its size limit,
  // hands the entry to the remote tiers, and returns its id. Store only what has been loaded back and has
  // run. kInvalidArgument when a bound of entry.h or manifest.h is exceeded; like every other Error, it
  // counts a store failure. Folds the journals.
  Result<Digest> store(const Digest& prekey, std::string observations, const Entry& entry);

  // For one export per prekey among the processes of this machine: see
  // single_flight.h. Only of use when not read-only.
  std::unique_ptr<Lease> lease(const Digest& prekey) const;

  // The entry is in use and saved so many seconds. Appends to the journal of this process; never fails: what
  // cannot be written is counted in memory, with one warning.
  void record_hit(const Digest& id, double seconds_saved);
  // A call that did not ask the cache; `code` names the reason and is cut to kMaxCodeBytes.
  void record_bypass(std::string_view code);

  // Keeps why a lookup missed, for `misses`. Never fails; does nothing when read-only.
  void record_miss(const Miss& miss);

  // What people call, through the `rekindle cache` commands.

  // All entries, newest first, with their usage.
  Result<std::vector<EntryInfo>> list();
  // The one entry whose id starts with `prefix` (hexadecimal). kNotFound when there is none, kInvalidArgument
  // when there are several or the prefix is not hexadecimal.
  Result<Digest> find(std::string_view prefix);
  // Why an entry, given by its id or by a prekey that led to it, is gone: the newest answer; std::nullopt
  // when it never was here or left long ago.
  Result<std::optional<Tombstone>> gone(const Digest& id_or_prekey);
  // What key and observations of the entries were made of, in the order of `ids`; empty where nothing sound
  // is stored. Not for the way to a hit.
  Result<std::vector<LeafTree>> leaves(const std::vector<Digest>& ids);
  // Reads at once all that explains a lookup of `prekey` for the model of this qualified class, and counts
  // nothing (misses/explain.h). Passes over the entry `except`.
  Result<LookupFacts> facts(const Digest& prekey, const std::string& model, const Digest& except = {});
  // The last kMaxMisses of all processes, newest first.
  std::vector<Miss> misses() const;
  // Database, journals of all processes, and what this object could not write.
  Result<CacheStats> stats();
  // Of the remote tiers, by this object.
  RemoteStats remote_stats() const;

  // Removes the entry and every candidate that leads to it. kNotFound when there is none.
  Status remove(const Digest& id);
  // A pinned entry stays until it is unpinned, removed or cleared: no policy and no size limit takes it. Both
  // are idempotent. kNotFound when there is no such entry.
  Status pin(const Digest& id);
  Status unpin(const Digest& id);
  // Removes what `policy` selects; with `dry_run` only says what would go, and works read-only.
  // kInvalidArgument when the policy asks for nothing.
  Result<PruneReport> prune(const PrunePolicy& policy, bool dry_run);
  // Removes entries, pins, counters, journals, misses and quarantined databases.
  Status clear();
  // Reads what there is and reports what is wrong. Without `repair` it changes nothing and works read-only.
  Result<VerifyReport> verify(const VerifyOptions& options);

  // Writes these entries, each with its candidates, to one file; all entries when `ids` is empty. Returns how
  // many. kNotFound when one is not here.
  Result<std::uint64_t> pack(std::vector<Digest> ids, const std::string& path);
  // Adds the entries of a bundle; see read_bundle for its Errors. Entries count as stored now by this cache.
  Result<UnpackReport> unpack(const std::string& path);

 private:
  ExportCache(CacheOptions options, std::unique_ptr<Remote> remote);

  void record(CacheEvent event);
  // Evicts and folds what is left to do; not when another process is at work here.
  void maintain();
  Result<std::optional<Entry>> load_remote(const Digest& id);
  // Stores an object of a remote tier, on a thread of its own.
  void backfill(std::string object);
  void wait_for_backfill();
  void record_corrupt(const std::string& what);
  void record_damage(const std::string& reason);
  std::string take_damage();
  using ChangeFunction = std::function<Status(Change&)>;
  // One transaction that also folds the journals.
  struct UpdateOptions {
    bool wait = true;       // for other processes
    bool reconcile = true;  // records and entries, before the change
  };
  Status update(const ChangeFunction& change, UpdateOptions how);
  Status update(const ChangeFunction& change) { return update(change, UpdateOptions()); }
  Status transact(TierWriter& writer, Usage& usage, const ChangeFunction& change);
  // Writes the records of a repaired database again.
  Status restore(TierWriter& writer);
  Status reconcile(Change& change);
  Result<VerifyReport> repair(Change& change, const VerifyOptions& options);
  Result<Usage> read_usage(TierReader& view);
  Result<Tombstones> read_tombstones(TierReader& view);
  // Every sound summary with its usage; the others, with what is wrong, into `unsound` when given.
  Result<std::vector<EntryInfo>> read_listing(TierReader& view, const Usage& usage,
                                              std::vector<std::pair<Digest, std::string>>* unsound = nullptr);
  Status evict(Change& change);
  Status erase_entry(const Digest& id, GoneReason reason);
  Status set_pin(const Digest& id, bool pinned);

  const CacheOptions options_;
  const std::string journal_dir_;
  const std::string misses_dir_;
  std::unique_ptr<Tier> tier_;
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<Remote> remote_;
  std::atomic<std::uint32_t> appended_ = 0;  // events since the last look at the journals
  Mutex backfill_mutex_;                     // guards the two below
  std::thread backfill_;
  int backfill_pid_ = 0;
  Mutex mutex_;         // guards what is below
  Usage unwritten_;     // events that no journal took
  std::string damage_;  // of the last database that could not be read; verify takes it
  bool warned_ = false;
};

}  // namespace rekindle
