// How entries come from elsewhere and go there: remote tiers and bundles.
#include <unistd.h>

#include <ctime>
#include <filesystem>

#include "export_cache/export_cache.h"
#include "export_cache/guarded.h"
#include "export_cache/tiers/tier.h"
#include "export_cache/upkeep/references.h"
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
  std::thread thread([this, object = std::move(object)] {
    const Status status = guarded("backfill", [&]() -> Status {
      REKINDLE_ASSIGN_OR_RETURN(const ObjectParts parts, take_apart(object, std::time(nullptr)));
      return update([&](Change& change) -> Status {
        REKINDLE_RETURN_IF_ERROR(put_object(change, object, parts));
        return evict(change);
      });
    });
    if (!status.ok())
      log_warning("an entry of a remote tier could not be stored here: " + status.error().message);
  });
  {
    const std::lock_guard guard(backfill_mutex_);
    backfill_pid_ = getpid();
    backfill_.swap(thread);
  }
  if (thread.joinable()) thread.join();  // of a thread that came here at the same time
}

void ExportCache::wait_for_backfill() {
  std::thread thread;
  bool ours = false;
  {
    const std::lock_guard guard(backfill_mutex_);
    thread.swap(backfill_);
    ours = backfill_pid_ == getpid();
  }
  if (!thread.joinable()) return;
  // A forked child has the object and not the thread.
  ours ? thread.join() : thread.detach();
}

RemoteStats ExportCache::remote_stats() const { return remote_->stats(); }

namespace {

// The file that a path leads to, which need not be there. A device or a pipe is none: it would be replaced.
Result<std::string> file_of(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path target = path;
  for (int links = 0; fs::is_symlink(target, error); ++links) {
    if (links == 40) return io_error(path + " is a link that leads to itself");
    target = target.parent_path() / fs::read_symlink(target, error);
  }
  if (fs::exists(target, error) && !fs::is_regular_file(target, error))
    return invalid_argument(path + " is no regular file; name a file to write");
  return target.string();
}

}  // namespace

Result<std::uint64_t> ExportCache::pack(std::vector<Digest> ids, const std::string& target) {
  return guarded("pack", [&]() -> Result<std::uint64_t> {
    REKINDLE_ASSIGN_OR_RETURN(const std::string path, file_of(target));
    REKINDLE_RETURN_IF_ERROR(tier_->read([&](TierReader& view) -> Status {
      if (ids.empty()) {
        REKINDLE_ASSIGN_OR_RETURN(ids, view.keys(Table::kSummary));
      }
      return write_bundle(path, ids, [&](const Digest& id) -> Result<std::string> {
        REKINDLE_ASSIGN_OR_RETURN(std::optional<std::string> object, view.get(Table::kEntry, id));
        if (!object) return not_found("no entry " + id.hex() + " in " + dir());
        REKINDLE_RETURN_IF_ERROR(check_object(*object, id));
        return *std::move(object);
      });
    }));
    return ids.size();
  });
}

Result<UnpackReport> ExportCache::unpack(const std::string& path) {
  constexpr std::size_t kTogether = 128;  // entries a commit; each holds a file open
  return guarded("unpack", [&]() -> Result<UnpackReport> {
    UnpackReport report;
    std::vector<std::pair<std::string, ObjectParts>> waiting;
    const auto flush = [&]() -> Status {
      std::uint64_t known = 0;
      REKINDLE_RETURN_IF_ERROR(update([&](Change& change) -> Status {
        known = 0;
        for (const auto& [object, parts] : waiting) {
          REKINDLE_ASSIGN_OR_RETURN(const auto summary, change.writer.get(Table::kSummary, parts.info.id));
          known += summary ? 1 : 0;
          REKINDLE_RETURN_IF_ERROR(put_object(change, object, parts));
        }
        return evict(change);
      }));
      report.known += known;
      report.added += waiting.size() - known;
      waiting.clear();
      return {};
    };
    REKINDLE_RETURN_IF_ERROR(read_bundle(path, [&](std::string_view object) -> Status {
      auto parts = take_apart(object, std::time(nullptr));
      if (!parts.ok()) {
        ++report.unsound;
        return {};
      }
      waiting.emplace_back(object, *std::move(parts));
      return waiting.size() < kTogether ? Status() : flush();
    }));
    if (!waiting.empty()) REKINDLE_RETURN_IF_ERROR(flush());
    return report;
  });
}

}  // namespace rekindle
