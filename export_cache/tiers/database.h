// Database: a RocksDB database opened for one operation. With job_env.h the only
// header that stands for RocksDB.
//
// Used by one thread. Locks nothing: see RocksDbTier.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "src/base/result.h"

namespace rekindle {

class Database {
 public:
  enum class Access { kRead, kWrite };
  // Changes by key; std::nullopt removes.
  using Batch = std::map<std::string, std::optional<std::string>, std::less<>>;
  using Visitor = std::function<void(std::string_view key, std::string_view value)>;

  // kWrite creates it in a directory that is missing. kCorruption when its files
  // are damaged, kIo when the system refuses.
  static Result<std::unique_ptr<Database>> open(const std::string& dir, Access access);
  // Whether `dir` holds a database, damaged or not. kIo when that cannot be told.
  static Result<bool> exists(const std::string& dir);
  // Makes what can be read of a damaged database one that opens again. False when nothing could be saved.
  static bool repair(const std::string& dir);
  ~Database();

  Result<std::optional<std::string>> get(std::string_view key);
  // Ascending, all keys that begin with `prefix`.
  Status scan(char prefix, const Visitor& visit);
  // Durable, all or nothing.
  Status commit(const Batch& batch);
  // Grows with every commit; tells whether newer commits were lost.
  std::uint64_t sequence() const;

  // What was found to be damaged since it was opened; empty: nothing.
  const std::string& damage() const { return damage_; }

 private:
  struct Handle;
  explicit Database(std::unique_ptr<Handle> handle);
  Error failure(const std::string& verb, const std::string& text, bool is_damage);

  std::unique_ptr<Handle> handle_;
  std::string damage_;
};

}  // namespace rekindle
