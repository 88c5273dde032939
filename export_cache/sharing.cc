// What ExportCache does with the remote tiers.
#include <unistd.h>

#include <ctime>

#include "export_cache/export_cache.h"
#include "export_cache/guarded.h"
#include "export_cache/references.h"
#include "export_cache/tier.h"
#include "src/base/log.h"

namespace rekindle {

Result<std::vector<Candidate>> ExportCache::lookup_remote(const Digest& prekey) {
  return guarded("lookup_remote",
                 [&]() -> Result<std::vector<Candidate>> { return remote_->lookup(prekey); });
}

Result<std::optional<Entry>> ExportCache::load_remote(const Digest& id) {
  std::optional<std::string> object = remote_->load(id);
  if (!object) return std::optional<Entry>();
  REKINDLE_ASSIGN_OR_RETURN(Entry entry, decode_object_entry(*object, id));
  if (mode() == CacheMode::kReadWrite) backfill(*std::move(object));
  return std::optional<Entry>(std::move(entry));
}

void ExportCache::backfill(std::string object) {
  wait_for_backfill();
  const std::lock_guard guard(backfill_mutex_);
  backfill_pid_ = getpid();
  backfill_ = std::thread([this, object = std::move(object)] {
    const Status status = guarded("backfill", [&]() -> Status {
      REKINDLE_ASSIGN_OR_RETURN(const ObjectParts parts, take_apart(object, std::time(nullptr)));
      return update([&](Change& change) -> Status {
        REKINDLE_RETURN_IF_ERROR(put_object(change, object, parts));
        return evict(change);
      });
    });
    if (!status.ok()) log_warning("an entry of a remote tier could not be stored here: " + status.error().message);
  });
}

void ExportCache::wait_for_backfill() {
  const std::lock_guard guard(backfill_mutex_);
  if (!backfill_.joinable()) return;
  // A forked child has the object and not the thread.
  backfill_pid_ == getpid() ? backfill_.join() : backfill_.detach();
}

RemoteStats ExportCache::remote_stats() const { return remote_->stats(); }

}  // namespace rekindle
