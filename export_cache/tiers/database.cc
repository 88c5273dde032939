#include "export_cache/tiers/database.h"

#include <rocksdb/db.h>
#include <rocksdb/file_checksum.h>
#include <rocksdb/options.h>
#include <rocksdb/write_batch.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "export_cache/tiers/job_env.h"

namespace rekindle {
namespace {

namespace fs = std::filesystem;

// Tables that may pile up before a commit merges them. Every commit leaves one; reading one more costs less
// than rewriting all.
constexpr int kMostTables = 16;

// RocksDB would write a LOG file at every open, even a read-only one.
class SilentLogger : public rocksdb::Logger {
 public:
  using rocksdb::Logger::Logv;
  void Logv(const char*, va_list) override {}
};

rocksdb::Options database_options(rocksdb::Env* env) {
  rocksdb::Options options;
  options.env = env;
  options.create_if_missing = true;
  options.paranoid_checks = true;
  options.info_log = std::make_shared<SilentLogger>();
  options.info_log_level = rocksdb::InfoLogLevel::ERROR_LEVEL;
  options.compression = rocksdb::kNoCompression;  // records are compressed already
  options.write_buffer_size = 64 << 20;           // a commit never spans two tables
  options.arena_block_size = 256 << 10;
  options.max_background_jobs = 2;
  options.avoid_flush_during_shutdown = true;  // a commit that failed must not succeed after all
  options.max_open_files = 256;
  options.skip_stats_update_on_db_open = true;
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  options.file_checksum_gen_factory = rocksdb::GetFileChecksumGenCrc32cFactory();
  // One that starts in the background would be cut short by the close that follows every operation.
  options.disable_auto_compactions = true;
  return options;
}

// Wrong bytes, as opposed to a system that refuses: only this is worth a repair.
bool is_damage(const rocksdb::Status& status) {
  const std::string text = status.ToString();
  for (const int refusal : {EMFILE, ENFILE, ENOMEM, EACCES, EINTR}) {
    // RocksDB calls a table that it was not given a descriptor for corrupt, and quotes the system.
    if (text.find(std::strerror(refusal)) != std::string::npos) return false;
  }
  for (const int misplaced : {EISDIR, ENOTDIR}) {
    if (text.find(std::strerror(misplaced)) != std::string::npos) return true;
  }
  // Somebody removed the cache directory meanwhile: there is nothing that could be damaged.
  if (status.IsPathNotFound() && text.find("While mkdir") != std::string::npos) return false;
  return status.IsCorruption() || status.IsInvalidArgument() || status.IsNotSupported() ||
         status.IsPathNotFound();
}

}  // namespace

struct Database::Handle {
  std::shared_ptr<rocksdb::Env> env = make_job_env();
  std::unique_ptr<rocksdb::DB> db;
};

Database::Database(std::unique_ptr<Handle> handle) : handle_(std::move(handle)) {}
Database::~Database() = default;

Result<std::unique_ptr<Database>> Database::open(const std::string& dir, Access access) {
  REKINDLE_ASSIGN_OR_RETURN(const bool there, exists(dir));
  if (there && !fs::exists(dir + "/CURRENT")) {
    // RocksDB would start a new database among the files of the old one.
    return corruption("cannot open the cache database: CURRENT is missing");
  }
  std::unique_ptr<Database> database(new Database(std::make_unique<Handle>()));
  const rocksdb::Options options = database_options(database->handle_->env.get());
  rocksdb::DB* opened = nullptr;
  const rocksdb::Status status = access == Access::kRead ? rocksdb::DB::OpenForReadOnly(options, dir, &opened)
                                                         : rocksdb::DB::Open(options, dir, &opened);
  database->handle_->db.reset(opened);
  if (!status.ok()) return database->failure("open", status.ToString(), is_damage(status));
  return database;
}

Result<bool> Database::exists(const std::string& dir) {
  std::error_code failed;
  if (struct stat info; stat(dir.c_str(), &info) == 0 && !S_ISDIR(info.st_mode)) return true;  // damaged
  for (fs::directory_iterator it(dir, failed), end; !failed && it != end; it.increment(failed)) {
    const fs::path name = it->path().filename();
    // A manifest alone is what a kill leaves of a database that was about to be created.
    if (name == "CURRENT" || name.extension() == ".sst") return true;
  }
  if (failed && failed != std::errc::no_such_file_or_directory) {
    return io_error("cannot read " + dir + ": " + failed.message());
  }
  return false;
}

bool Database::repair(const std::string& dir) {
  std::error_code failed;
  std::shared_ptr<rocksdb::Env> env = make_job_env();
  const bool repaired = rocksdb::RepairDB(dir, database_options(env.get())).ok();
  fs::remove_all(dir + "/lost", failed);  // tables that cannot be read
  return repaired && !failed;
}

Error Database::failure(const std::string& verb, const std::string& text, bool is_damage) {
  const std::string message = "cannot " + verb + " the cache database: " + text;
  if (!is_damage) return io_error(message);
  damage_ = text;
  return corruption(message);
}

Result<std::optional<std::string>> Database::get(std::string_view key) {
  std::string value;
  const rocksdb::Status status =
      handle_->db->Get(rocksdb::ReadOptions(), rocksdb::Slice(key.data(), key.size()), &value);
  if (status.IsNotFound()) return std::optional<std::string>();
  if (!status.ok()) return failure("read", status.ToString(), is_damage(status));
  return std::optional<std::string>(std::move(value));
}

Status Database::scan(char prefix, const Visitor& visit) {
  const std::unique_ptr<rocksdb::Iterator> it(handle_->db->NewIterator(rocksdb::ReadOptions()));
  for (it->Seek(rocksdb::Slice(&prefix, 1)); it->Valid() && it->key()[0] == prefix; it->Next()) {
    visit(it->key().ToStringView(), it->value().ToStringView());
  }
  if (!it->status().ok()) return failure("read", it->status().ToString(), is_damage(it->status()));
  return {};
}

Status Database::commit(const Batch& batch) {
  rocksdb::WriteBatch changes(0, 0, /*protection_bytes_per_key=*/8, 0);
  rocksdb::Status status;
  for (auto it = batch.begin(); it != batch.end() && status.ok(); ++it) {
    status = it->second ? changes.Put(it->first, *it->second) : changes.Delete(it->first);
  }
  // Without a log: the batch becomes one table, and the manifest's record of that table is the commit.
  rocksdb::WriteOptions unlogged;
  unlogged.disableWAL = true;
  if (status.ok()) status = handle_->db->Write(unlogged, &changes);
  if (status.ok()) status = handle_->db->Flush(rocksdb::FlushOptions());
  if (!status.ok()) return failure("write", status.ToString(), is_damage(status));
  std::string tables;
  if (handle_->db->GetProperty("rocksdb.num-files-at-level0", &tables) &&
      std::atoi(tables.c_str()) >= kMostTables) {
    // The commit stands whatever becomes of this.
    status = handle_->db->CompactRange(rocksdb::CompactRangeOptions(), nullptr, nullptr);
    if (!status.ok() && is_damage(status)) damage_ = status.ToString();
  }
  return {};
}

std::uint64_t Database::sequence() const { return handle_->db->GetLatestSequenceNumber(); }

}  // namespace rekindle
