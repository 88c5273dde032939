// RocksDbTier: the tier in a local directory.
//
// The database is opened for one call and closed at its end, under a lock file of ours (shared with a
// read-only open for read, exclusive for update), so no reader ever runs beside a writer and no handle lives
// across user code or a fork. A database that cannot be opened or read is renamed to
// quarantine-<seconds>-<pid> and replaced by an empty one; the newest quarantine is kept, older ones are
// deleted.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "export_cache/tier.h"

namespace rekindle {

struct RocksDbTierOptions {
  std::string dir{};  // must exist unless readonly
  bool readonly = false;
  std::chrono::milliseconds lock_timeout{10'000};
  // Told when a damaged database was quarantined, or in a read-only tier passed over. Called under the lock.
  std::function<void(const std::string& reason)> on_damage{};
};

// Does no I/O. Failures of its calls: kIo when a lock is held for longer than the timeout or the system
// refuses (full disk, permissions); kUnsupported for an update of a read-only tier, or in a child that was
// forked after its parent used the database for writing (RocksDB's threads do not survive a fork).
std::unique_ptr<Tier> make_rocksdb_tier(RocksDbTierOptions options);

}  // namespace rekindle
