#include "export_cache/tiers/rocksdb_tier.h"

#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <optional>

#include "export_cache/files/directory.h"
#include "export_cache/files/file_lock.h"
#include "export_cache/tiers/fork_guard.h"
#include "export_cache/tiers/state.h"
#include "export_cache/tiers/view.h"
#include "src/base/log.h"

namespace rekindle {
namespace {

namespace fs = std::filesystem;

// The inode of the database directory, 0 when there is none: tells whether another process has replaced it.
ino_t inode_of(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 ? info.st_ino : 0;
}

class RocksDbTier : public Tier {
 public:
  explicit RocksDbTier(RocksDbTierOptions options)
      : options_(std::move(options)),
        db_dir_(options_.dir + "/db"),
        lock_path_(options_.dir + "/rekindle.lock"),
        state_path_(options_.dir + "/state"),
        objects_(options_.dir + "/objects") {}

  Status read(const std::function<Status(TierReader&)>& view) override {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      Reading reading(*this);
      const Status status = reading.run(view);
      const std::string damage = reading.damage();
      if (damage.empty()) return status;
      reading.close();
      if (options_.readonly) {
        report(damage);
        View without_database(objects_, [] { return static_cast<Database*>(nullptr); });
        return view(without_database);
      }
      REKINDLE_RETURN_IF_ERROR(recover_unless_done(reading.seen(), damage));
    }
    return damaged_again();
  }

  Status update(const std::function<Status(TierWriter&)>& change, const std::function<void()>& committed,
                Patience patience) override {
    if (options_.readonly) return unsupported("the cache in " + options_.dir + " is open read-only");
    REKINDLE_ASSIGN_OR_RETURN(const ForkGuard guard, ForkGuard::enter());
    const auto timeout = patience == Patience::kWait ? options_.lock_timeout : std::chrono::milliseconds(0);
    REKINDLE_ASSIGN_OR_RETURN(const FileLock lock,
                              FileLock::acquire(lock_path_, FileLock::Kind::kExclusive, timeout));
    REKINDLE_RETURN_IF_ERROR(put_file_aside(objects_.dir()));
    objects_.sweep();
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      std::string damage;
      const Status status = update_once(change, read_state(state_path_).sequence, damage);
      if (damage.empty()) {
        if (status.ok() && committed) committed();
        return status;
      }
      REKINDLE_RETURN_IF_ERROR(recover(damage));
    }
    return damaged_again();
  }

  Status clear(const std::function<void()>& committed) override {
    if (options_.readonly) return unsupported("the cache in " + options_.dir + " is open read-only");
    REKINDLE_ASSIGN_OR_RETURN(const FileLock lock, acquire(FileLock::Kind::kExclusive));
    // Renamed first: a kill half-way through the deletion leaves no half of anything behind. The database
    // goes last: without it the entries would be taken for lost records and come back.
    const std::string grave = quarantine_name();
    REKINDLE_RETURN_IF_ERROR(move_aside(objects_.dir(), grave + "-objects"));
    unlink(state_path_.c_str());
    REKINDLE_RETURN_IF_ERROR(move_aside(db_dir_, grave));
    remove_quarantines();
    if (committed) committed();
    return {};
  }

  Result<TierStats> stats() override { return TierStats{disk_bytes(options_.dir)}; }
  std::uint64_t note() override { return read_state(state_path_).note; }

 private:
  static constexpr int kAttempts = 2;

  // One read: the lock and the database come with the first record that is not an entry.
  class Reading {
   public:
    explicit Reading(RocksDbTier& tier) : tier_(tier), view_(tier.objects_, [this] { return open(); }) {}

    Status run(const std::function<Status(TierReader&)>& view) { return view(view_); }
    std::string damage() const { return database_ ? database_->damage() : damage_; }
    ino_t seen() const { return seen_; }
    void close() {
      damage_ = damage();
      database_.reset();
      lock_.reset();
      guard_.reset();
    }

   private:
    Result<Database*> open() {
      if (opened_) return database_.get();
      REKINDLE_ASSIGN_OR_RETURN(ForkGuard guard, ForkGuard::enter());
      REKINDLE_ASSIGN_OR_RETURN(FileLock lock, tier_.acquire(FileLock::Kind::kShared));
      guard_.emplace(std::move(guard));
      lock_.emplace(std::move(lock));
      seen_ = inode_of(tier_.db_dir_);
      const std::uint64_t committed = read_state(tier_.state_path_).sequence;
      REKINDLE_ASSIGN_OR_RETURN(database_, tier_.open_database(Database::Access::kRead, committed, damage_));
      opened_ = true;
      return database_.get();
    }

    RocksDbTier& tier_;
    bool opened_ = false;
    ino_t seen_ = 0;
    std::string damage_;
    std::optional<ForkGuard> guard_;
    std::optional<FileLock> lock_;
    std::unique_ptr<Database> database_;  // closed before the lock is released
    View view_;
  };

  Result<FileLock> acquire(FileLock::Kind kind) {
    return FileLock::acquire(lock_path_, kind, options_.lock_timeout);
  }

  Error damaged_again() const {
    return io_error("the cache database " + db_dir_ + " is damaged again and again; check the disk");
  }

  // Null, for a read, when there is none yet. Fills `damage` when it is
  // damaged or older than the commit `committed`.
  Result<std::unique_ptr<Database>> open_database(Database::Access access, std::uint64_t committed,
                                                  std::string& damage) {
    REKINDLE_ASSIGN_OR_RETURN(const bool there, Database::exists(db_dir_));
    if (!there) {
      if (committed > 0) return note_damage(damage, "the database is missing");
      if (access == Database::Access::kRead) return std::unique_ptr<Database>();
    }
    auto database = Database::open(db_dir_, access);
    if (!database.ok()) {
      if (database.error().code == ErrorCode::kCorruption) damage = database.error().message;
      return database;
    }
    if ((*database)->sequence() < committed) return note_damage(damage, "its newest commits are lost");
    return database;
  }

  static Error note_damage(std::string& damage, const std::string& what) {
    damage = what;
    return corruption(what);
  }

  Status update_once(const std::function<Status(TierWriter&)>& change, std::uint64_t committed,
                     std::string& damage) {
    REKINDLE_ASSIGN_OR_RETURN(const auto database,
                              open_database(Database::Access::kWrite, committed, damage));
    View writer(objects_, [&] { return database.get(); });
    Status result = change(writer);
    if (result.ok() && database->damage().empty()) result = writer.commit(*database);
    if (result.ok()) write_state(state_path_, {database->sequence(), writer.noted()});
    damage = database->damage();
    return result;
  }

  void report(const std::string& reason) {
    if (options_.on_damage) options_.on_damage(reason);
  }

  // `seen` was damaged when we had the shared lock; another process may have recovered it since.
  Status recover_unless_done(ino_t seen, const std::string& reason) {
    REKINDLE_ASSIGN_OR_RETURN(const ForkGuard guard, ForkGuard::enter());
    REKINDLE_ASSIGN_OR_RETURN(const FileLock lock, acquire(FileLock::Kind::kExclusive));
    return inode_of(db_dir_) == seen ? recover(reason) : Status();
  }

  // Needs the exclusive lock and a closed database. The directory gets a new inode, for recover_unless_done.
  Status recover(const std::string& reason) {
    const std::string name = quarantine_name();
    remove_quarantines();  // the newest is kept
    REKINDLE_RETURN_IF_ERROR(move_aside(db_dir_, name));
    repair_into_place(name);
    report(reason);
    // The file state is left until this has succeeded: after a failure the next call starts over.
    const auto restore = options_.restore ? options_.restore : [](TierWriter&) { return Status(); };
    std::string damage;
    const Status restored = update_once(restore, 0, damage);
    if (damage.empty()) return restored;
    // What the repair saved is no better: start from the entries alone.
    REKINDLE_RETURN_IF_ERROR(move_aside(db_dir_, quarantine_name() + "-repaired"));
    return update_once(restore, 0, damage);
  }

  // A copy is repaired: what cannot be read stays in quarantine as it was.
  void repair_into_place(const std::string& quarantined) {
    std::error_code failed;
    fs::copy(quarantined, db_dir_, failed);
    const auto there = Database::exists(db_dir_);
    if (!failed && there.ok() && *there && Database::repair(db_dir_)) return;
    fs::remove_all(db_dir_, failed);
    if (failed) log_warning("cannot delete " + db_dir_ + ": " + failed.message());
  }

  std::string quarantine_name() const {
    return options_.dir + "/quarantine-" + std::to_string(std::time(nullptr)) + "-" +
           std::to_string(getpid());
  }

  Status move_aside(const std::string& from, const std::string& to) {
    std::error_code failed;
    fs::rename(from, to, failed);
    if (failed && failed != std::errc::no_such_file_or_directory) {
      return io_error("cannot move " + from + " to " + to + ": " + failed.message());
    }
    return {};
  }

  // Of what is to be a directory and is none: no change could be written.
  Status put_file_aside(const std::string& dir) {
    struct stat info;
    if (stat(dir.c_str(), &info) != 0 || S_ISDIR(info.st_mode)) return {};
    report(dir + " is no directory");
    return move_aside(dir, quarantine_name() + "-objects");
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
  const std::string state_path_;
  const ObjectFiles objects_;
};

}  // namespace

std::unique_ptr<Tier> make_rocksdb_tier(RocksDbTierOptions options) {
  return std::make_unique<RocksDbTier>(std::move(options));
}

}  // namespace rekindle
