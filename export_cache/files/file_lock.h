// FileLock: one flock on one lock file, held for one operation.
//
// The kernel releases it when its holder dies. It is unlocked explicitly, so a copy of the descriptor that a
// fork left in a child does not keep it.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "src/base/result.h"

namespace rekindle {

class FileLock {
 public:
  enum class Kind { kShared, kExclusive };

  // Waits at most `timeout`, then kIo. Creates `path` when it is missing; a shared lock in a directory that
  // is missing or cannot be written is granted without a lock file, for nobody can write there either.
  static Result<FileLock> acquire(const std::string& path, Kind kind, std::chrono::milliseconds timeout);
  // As acquire, without waiting: std::nullopt while another process holds it.
  static Result<std::optional<FileLock>> try_acquire(const std::string& path, Kind kind);

  FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace rekindle
