// RocksDbTier: the tier in a local directory. Entries lie in files of their own (object_files.h), all other
// records in a RocksDB database.
//
// The database is opened for one call and closed at its end, under a lock file of ours (shared with a
// read-only open for read, exclusive for update), so no reader ever runs beside a writer and no handle lives
// across user code or a fork. A read of entries alone opens no database and takes no lock.
//
// A database that is damaged, or that lost commits it had acknowledged, is repaired as far as it goes, else
// renamed to quarantine-<seconds>-<pid> (the newest is kept) and replaced by an empty one; then `restore`
// writes the lost records again from the entries.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "export_cache/tiers/tier.h"

namespace rekindle {

struct RocksDbTierOptions {
  std::string dir{};  // must exist unless readonly
  bool readonly = false;
  std::chrono::milliseconds lock_timeout{10'000};
  // Told that the database was damaged, or in a read-only tier passed over. Called under the lock.
  std::function<void(const std::string& reason)> on_damage{};
  // One update that makes the records of a repaired database agree with its entries.
  std::function<Status(TierWriter&)> restore{};
};

// Does no I/O. Failures of its calls: kIo when a lock is held for longer than the timeout or the system
// refuses (full disk, permissions); kUnsupported for an update of a read-only tier, or in a child that was
// forked while another thread of its parent used a database (fork_guard.h).
std::unique_ptr<Tier> make_rocksdb_tier(RocksDbTierOptions options);

}  // namespace rekindle
