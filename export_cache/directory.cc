#include "export_cache/directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace rekindle {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRemedy = "; choose another one with REKINDLE_CACHE_DIR";

Error failure(const std::string& what, const std::string& dir) {
  return io_error("cannot " + what + " cache directory " + dir + ": " + std::strerror(errno) + kRemedy);
}

bool trusted_owner(const struct stat& info) { return info.st_uid == geteuid() || info.st_uid == 0; }

Status make_directories(const fs::path& dir) {
  if (dir.empty() || mkdir(dir.c_str(), 0700) == 0 || errno == EEXIST) return {};
  if (errno != ENOENT || dir == dir.parent_path()) return failure("create", dir.string());
  REKINDLE_RETURN_IF_ERROR(make_directories(dir.parent_path()));
  if (mkdir(dir.c_str(), 0700) == 0 || errno == EEXIST) return {};
  return failure("create", dir.string());
}

}  // namespace

Status prepare_directory(const std::string& dir, CacheMode mode) {
  if (dir.empty()) return invalid_argument("the cache directory has an empty name");
  if (mode == CacheMode::kReadWrite) REKINDLE_RETURN_IF_ERROR(make_directories(dir));
  struct stat link, info;
  if (lstat(dir.c_str(), &link) != 0 || stat(dir.c_str(), &info) != 0) {
    if (errno == ENOENT && mode == CacheMode::kReadOnly) return {};
    return failure("use", dir);
  }
  if (!S_ISDIR(info.st_mode))
    return invalid_argument("cache directory " + dir + " is not a directory" + kRemedy);
  if (S_ISLNK(link.st_mode) && !trusted_owner(link)) {
    return invalid_argument("cache directory " + dir + " is another user's link" + kRemedy);
  }
  if (mode == CacheMode::kReadWrite && !trusted_owner(info)) {
    return invalid_argument("cache directory " + dir + " belongs to user " + std::to_string(info.st_uid) +
                            kRemedy);
  }
  if ((info.st_mode & S_IWOTH) != 0) {
    return invalid_argument("cache directory " + dir + " can be written by every user; run: chmod 700 " +
                            dir);
  }
  if (mode == CacheMode::kReadWrite && access(dir.c_str(), W_OK | X_OK) != 0) return failure("write", dir);
  return {};
}

std::uint64_t disk_bytes(const std::string& dir) {
  std::uint64_t total = 0;
  std::error_code failed;
  fs::recursive_directory_iterator it(dir, fs::directory_options::skip_permission_denied, failed), end;
  for (; !failed && it != end; it.increment(failed)) {
    std::error_code gone;  // files come and go beside us
    if (it->is_regular_file(gone)) {
      const std::uintmax_t size = it->file_size(gone);
      if (!gone) total += size;
    }
  }
  return total;
}

}  // namespace rekindle
