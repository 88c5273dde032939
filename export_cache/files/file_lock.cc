#include "export_cache/files/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

namespace rekindle {
namespace {

using Clock = std::chrono::steady_clock;

// -1 with errno set when it cannot be opened.
int open_lock_file(const std::string& path, FileLock::Kind kind) {
  constexpr int kFlags = O_CLOEXEC | O_NOFOLLOW;
  if (kind == FileLock::Kind::kShared) {
    const int fd = open(path.c_str(), O_RDONLY | kFlags);
    if (fd >= 0 || errno != ENOENT) return fd;
  }
  return open(path.c_str(), O_RDWR | O_CREAT | kFlags, 0600);
}

// False when somebody removed or replaced the lock file after we opened it.
bool still_at(int fd, const std::string& path) {
  struct stat ours, theirs;
  return fstat(fd, &ours) == 0 && stat(path.c_str(), &theirs) == 0 && ours.st_ino == theirs.st_ino &&
         ours.st_dev == theirs.st_dev;
}

}  // namespace

Result<std::optional<FileLock>> FileLock::try_acquire(const std::string& path, Kind kind) {
  const int fd = open_lock_file(path, kind);
  if (fd < 0) {
    const bool nobody_writes = errno == ENOENT || errno == EROFS || errno == EACCES;
    if (kind == Kind::kShared && nobody_writes) return std::optional(FileLock(-1));
    return io_error("cannot open lock file " + path + ": " + std::strerror(errno));
  }
  FileLock lock(fd);
  if (flock(fd, (kind == Kind::kShared ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK || errno == EINTR) return std::optional<FileLock>();
    return io_error("cannot lock " + path + ": " + std::strerror(errno) + "; put the cache on a local disk");
  }
  if (!still_at(fd, path)) return std::optional<FileLock>();
  return std::optional(std::move(lock));
}

Result<FileLock> FileLock::acquire(const std::string& path, Kind kind, std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  auto pause = std::chrono::milliseconds(1);
  while (true) {
    REKINDLE_ASSIGN_OR_RETURN(std::optional<FileLock> lock, try_acquire(path, kind));
    if (lock) return *std::move(lock);
    if (Clock::now() >= deadline) {
      return io_error("another process has held " + path + " for " + std::to_string(timeout.count()) +
                      " ms; see who with: fuser " + path);
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::milliseconds(20));
  }
}

FileLock::~FileLock() {
  if (fd_ < 0) return;
  flock(fd_, LOCK_UN);
  close(fd_);
}

}  // namespace rekindle
