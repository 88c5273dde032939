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
// error the cache is as before the call and the caller goes on without it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "export_cache/entry.h"
#include "export_cache/manifest.h"
#include "export_cache/options.h"
#include "export_cache/single_flight.h"
#include "export_cache/stats.h"
#include "export_cache/summary.h"
#include "export_cache/usage.h"
#include "src/base/digest.h"
#include "src/base/result.h"

namespace rekindle {

class Journal;
class Tier;
class TierReader;
class TierWriter;

class ExportCache {
 public:
  // Creates the directory (0700) unless read-only. kInvalidArgument when the directory cannot be trusted: see
  // prepare_directory in directory.h. Opens no database.
  static Result<std::unique_ptr<ExportCache>> open(CacheOptions options = {});
  ~ExportCache();

  const std::string& dir() const { return options_.dir; }
  CacheMode mode() const { return options_.mode; }

  // The candidates under `prekey`, newest first; empty when there are none. Counts a lookup.
  Result<std::vector<Candidate>> lookup(const Digest& prekey);
  // The verified entry; std::nullopt when there is none or when it was corrupt (counted, and removed unless
  // read-only). Counts no hit: see record_hit.
  Result<std::optional<Entry>> load(const Digest& id);
  // Publishes the entry and its candidate in one durable step and returns the entry's id. Store only what has
  // been loaded back and has run. kInvalidArgument when a bound of entry.h or manifest.h is exceeded,
  // kUnsupported when read-only; both, like kIo, count a store failure. Folds the journals.
  Result<Digest> store(const Digest& prekey, std::string observations, const Entry& entry);

  // For one export per prekey among the processes of this machine: see single_flight.h. Only of use when not
  // read-only.
  std::unique_ptr<Lease> lease(const Digest& prekey) const;

  // The entry is in use and saved so many seconds. Appends to the journal of this process; never fails: what
  // cannot be written is counted in memory, with one warning.
  void record_hit(const Digest& id, double seconds_saved);
  // A call that did not ask the cache; `code` names the reason and is cut to kMaxCodeBytes.
  void record_bypass(std::string_view code);

  // All entries, newest first, with their usage.
  Result<std::vector<EntryInfo>> list();
  // The one entry whose id starts with `prefix` (hexadecimal). kNotFound when there is none, kInvalidArgument
  // when there are several or the prefix is not hexadecimal.
  Result<Digest> find(std::string_view prefix);
  // Removes the entry and every candidate that leads to it. kNotFound when there is none.
  Status remove(const Digest& id);
  // Removes entries, counters, journals and quarantined databases.
  Status clear();
  // Database, journals of all processes, and what this object could not write.
  Result<CacheStats> stats();

 private:
  explicit ExportCache(CacheOptions options);

  void record(CacheEvent event);
  void record_corrupt(const std::string& what);
  // One transaction that also folds the journals and counts `events`.
  Status update(const std::function<Status(TierWriter&, Usage&)>& change);
  Result<Usage> read_usage(TierReader& view);
  Status publish(TierWriter& writer, Usage& usage, const Digest& prekey, const Candidate& added);
  Status erase_entry(const Digest& id);

  const CacheOptions options_;
  const std::string journal_dir_;
  std::unique_ptr<Tier> tier_;
  std::unique_ptr<Journal> journal_;
  std::mutex mutex_;  // guards the two below
  Usage unwritten_;   // events that no journal took
  bool warned_ = false;
};

}  // namespace rekindle
