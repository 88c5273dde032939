#include "export_cache/tiers/rocksdb_tier.h"

#include <rocksdb/db.h>
#include <rocksdb/file_checksum.h>
#include <rocksdb/options.h>
#include <rocksdb/utilities/write_batch_with_index.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <ctime>
#include <filesystem>

#include "export_cache/directory.h"
#include "export_cache/file_lock.h"
#include "export_cache/tiers/fork_guard.h"
#include "src/base/log.h"

namespace rekindle {
namespace {

namespace fs = std::filesystem;

// RocksDB would write a LOG file at every open, even a read-only one.
class SilentLogger : public rocksdb::Logger {
 public:
  using rocksdb::Logger::Logv;
  void Logv(const char*, va_list) override {}
};

rocksdb::Options database_options() {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.paranoid_checks = true;
  options.info_log = std::make_shared<SilentLogger>();
  options.info_log_level = rocksdb::InfoLogLevel::ERROR_LEVEL;
  options.compression = rocksdb::kNoCompression;  // records are compressed already
  options.write_buffer_size = 4 << 20;
  options.max_background_jobs = 2;
  options.max_open_files = 256;
  options.skip_stats_update_on_db_open = true;
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  options.file_checksum_gen_factory = rocksdb::GetFileChecksumGenCrc32cFactory();
  // Large records lie in blob files: compaction then moves keys, not graphs. Every update is flushed, so a
  // blob file holds the records of one update and goes with them; collecting garbage inside of files would
  // only copy.
  options.enable_blob_files = true;
  options.min_blob_size = 64 << 10;
  return options;
}

// Wrong bytes, as opposed to a system that refuses: only this is worth a new database.
bool is_damage(const rocksdb::Status& status) {
  return status.IsCorruption() || status.IsInvalidArgument() || status.IsNotSupported() ||
         status.IsPathNotFound();
}

std::string full_key(Table table, const Digest& key) {
  return static_cast<char>(table) + std::string(key.view());
}

// The inode of the database directory, 0 when there is none: tells whether another process has replaced it.
ino_t inode_of(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 ? info.st_ino : 0;
}

// One open database, its reads, and the batch of an update. With no database it is empty.
class View : public TierWriter {
 public:
  explicit View(rocksdb::DB* db) : db_(db) {}

  Result<std::optional<std::string>> get(Table table, const Digest& key) override {
    if (db_ == nullptr) return std::optional<std::string>();
    std::string record;
    const rocksdb::Status status =
        batch_.GetFromBatchAndDB(db_, rocksdb::ReadOptions(), full_key(table, key), &record);
    if (status.IsNotFound()) return std::optional<std::string>();
    if (!status.ok()) return failure("read", status);
    return std::optional<std::string>(std::move(record));
  }

  Status for_each(Table table, const Visitor& visit) override {
    if (db_ == nullptr) return {};
    const std::unique_ptr<rocksdb::Iterator> it(
        batch_.NewIteratorWithBase(db_->NewIterator(rocksdb::ReadOptions())));
    const char prefix = static_cast<char>(table);
    for (it->Seek(rocksdb::Slice(&prefix, 1)); it->Valid() && it->key()[0] == prefix; it->Next()) {
      Digest key;
      if (it->key().size() != 1 + key.bytes.size()) continue;
      std::memcpy(key.bytes.data(), it->key().data() + 1, key.bytes.size());
      visit(key, it->value().ToStringView());
    }
    if (!it->status().ok()) return failure("read", it->status());
    return {};
  }

  Result<std::vector<Digest>> keys(Table table) override {
    std::vector<Digest> keys;
    REKINDLE_RETURN_IF_ERROR(for_each(table, [&](const Digest& key, std::string_view) { keys.push_back(key); }));
    return keys;
  }

  void put(Table table, const Digest& key, std::string_view record) override {
    const rocksdb::Status status = batch_.Put(full_key(table, key), record);
    if (!status.ok()) batch_error_ = status;
  }

  void remove(Table table, const Digest& key) override {
    const rocksdb::Status status = batch_.Delete(full_key(table, key));
    if (!status.ok()) batch_error_ = status;
    removed_ = true;
  }

  Status commit() {
    if (!batch_error_.ok()) return failure("write", batch_error_);
    rocksdb::WriteOptions options;
    options.sync = true;
    if (const auto status = db_->Write(options, batch_.GetWriteBatch()); !status.ok()) return failure("write", status);
    // Flushed, so that readers replay no log.
    if (const auto status = db_->Flush(rocksdb::FlushOptions()); !status.ok())
      return failure("write", status);
    if (removed_) reclaim();
    return {};
  }

  Error failure(const std::string& verb, const rocksdb::Status& status) {
    if (is_damage(status)) damage_ = status.ToString();
    const std::string message = "cannot " + verb + " the cache database: " + status.ToString();
    return is_damage(status) ? corruption(message) : io_error(message);
  }

  // Empty while nothing damaged was met.
  const std::string& damage() const { return damage_; }

 private:
  // Compacts, so that removed bytes go back to the disk now: no later process stays open long enough to do
  // it.
  void reclaim() {
    const rocksdb::Status status = db_->CompactRange(rocksdb::CompactRangeOptions(), nullptr, nullptr);
    if (!status.ok()) log_warning("the export cache could not reclaim space: " + status.ToString());
  }

  rocksdb::DB* db_;
  rocksdb::WriteBatchWithIndex batch_{rocksdb::BytewiseComparator(), 0, /*overwrite_key=*/true, 0,
                                      /*protection_bytes_per_key=*/8};
  rocksdb::Status batch_error_;
  bool removed_ = false;
  std::string damage_;
};

class RocksDbTier : public Tier {
 public:
  explicit RocksDbTier(RocksDbTierOptions options)
      : options_(std::move(options)),
        db_dir_(options_.dir + "/db"),
        lock_path_(options_.dir + "/rekindle.lock") {}

  Status read(const std::function<Status(TierReader&)>& view) override {
    REKINDLE_ASSIGN_OR_RETURN(const ForkGuard guard, ForkGuard::enter(ForkGuard::Use::kRead));
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      std::string damage;
      ino_t seen = 0;
      {
        REKINDLE_ASSIGN_OR_RETURN(const FileLock lock, acquire(FileLock::Kind::kShared));
        seen = inode_of(db_dir_);
        const Status status = read_once(view, damage);
        if (damage.empty()) return status;
      }
      if (options_.readonly) {
        report(damage);
        View empty(nullptr);
        return view(empty);
      }
      REKINDLE_ASSIGN_OR_RETURN(const FileLock lock, acquire(FileLock::Kind::kExclusive));
      if (inode_of(db_dir_) == seen) REKINDLE_RETURN_IF_ERROR(quarantine(damage));
    }
    return io_error("the cache database " + db_dir_ + " is damaged again and again; check the disk");
  }

  Status update(const std::function<Status(TierWriter&)>& change,
                const std::function<void()>& committed) override {
    if (options_.readonly) return unsupported("the cache in " + options_.dir + " is open read-only");
    REKINDLE_ASSIGN_OR_RETURN(const ForkGuard guard, ForkGuard::enter(ForkGuard::Use::kWrite));
    REKINDLE_ASSIGN_OR_RETURN(const FileLock lock, acquire(FileLock::Kind::kExclusive));
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      std::string damage;
      const Status status = update_once(change, damage);
      if (damage.empty()) {
        if (status.ok() && committed) committed();
        return status;
      }
      REKINDLE_RETURN_IF_ERROR(quarantine(damage));
    }
    return io_error("the cache database " + db_dir_ + " is damaged again and again; check the disk");
  }

  Status clear(const std::function<void()>& committed) override {
    if (options_.readonly) return unsupported("the cache in " + options_.dir + " is open read-only");
    REKINDLE_ASSIGN_OR_RETURN(const FileLock lock, acquire(FileLock::Kind::kExclusive));
    // Renamed first: a kill half-way through the deletion leaves no half of a database behind.
    REKINDLE_RETURN_IF_ERROR(quarantine_rename());
    remove_quarantines();
    if (committed) committed();
    return {};
  }

  Result<TierStats> stats() override { return TierStats{disk_bytes(options_.dir)}; }

 private:
  static constexpr int kAttempts = 2;

  Result<FileLock> acquire(FileLock::Kind kind) {
    return FileLock::acquire(lock_path_, kind, options_.lock_timeout);
  }

  Status read_once(const std::function<Status(TierReader&)>& view, std::string& damage) {
    std::error_code unreadable;
    if (!fs::exists(db_dir_ + "/CURRENT", unreadable)) {
      if (unreadable) return io_error("cannot read " + db_dir_ + ": " + unreadable.message());
      View empty(nullptr);
      return view(empty);
    }
    rocksdb::DB* opened = nullptr;
    const rocksdb::Status status = rocksdb::DB::OpenForReadOnly(database_options(), db_dir_, &opened);
    const std::unique_ptr<rocksdb::DB> db(opened);
    View reader(db.get());
    const Status result = status.ok() ? view(reader) : Status(reader.failure("open", status));
    damage = reader.damage();
    return result;
  }

  Status update_once(const std::function<Status(TierWriter&)>& change, std::string& damage) {
    if (lost_current()) {
      damage = "CURRENT is missing";
      return {};
    }
    rocksdb::DB* opened = nullptr;
    const rocksdb::Status status = rocksdb::DB::Open(database_options(), db_dir_, &opened);
    const std::unique_ptr<rocksdb::DB> db(opened);
    View writer(db.get());
    Status result = status.ok() ? change(writer) : Status(writer.failure("open", status));
    if (result.ok() && writer.damage().empty()) result = writer.commit();
    damage = writer.damage();
    return result;
  }

  // Files of a database without the one that names them: RocksDB would start a new database among them.
  bool lost_current() const {
    std::error_code failed;
    if (fs::exists(db_dir_ + "/CURRENT", failed)) return false;
    for (fs::directory_iterator it(db_dir_, failed), end; !failed && it != end; it.increment(failed)) {
      if (it->path().extension() == ".sst" || it->path().extension() == ".blob") return true;
    }
    return false;
  }

  void report(const std::string& reason) {
    if (options_.on_damage) options_.on_damage(reason);
  }

  Status quarantine_rename() {
    remove_quarantines();  // the newest is kept
    const std::string target =
        options_.dir + "/quarantine-" + std::to_string(std::time(nullptr)) + "-" + std::to_string(getpid());
    std::error_code failed;
    fs::rename(db_dir_, target, failed);
    if (failed && failed != std::errc::no_such_file_or_directory) {
      return io_error("cannot move the database to " + target + ": " + failed.message());
    }
    return {};
  }

  // Needs the exclusive lock and a closed database.
  Status quarantine(const std::string& reason) {
    REKINDLE_RETURN_IF_ERROR(quarantine_rename());
    report(reason);
    return {};
  }

  void remove_quarantines() {
    std::error_code failed;
    for (fs::directory_iterator it(options_.dir, failed), end; !failed && it != end; it.increment(failed)) {
      if (!it->path().filename().string().starts_with("quarantine-")) continue;
      std::error_code left;
      fs::remove_all(it->path(), left);
      if (left) log_warning("cannot delete " + it->path().string() + ": " + left.message());
    }
  }

  const RocksDbTierOptions options_;
  const std::string db_dir_;
  const std::string lock_path_;
};

}  // namespace

std::unique_ptr<Tier> make_rocksdb_tier(RocksDbTierOptions options) {
  return std::make_unique<RocksDbTier>(std::move(options));
}

}  // namespace rekindle
