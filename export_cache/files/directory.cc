#include "export_cache/files/directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "src/base/log.h"

namespace rekindle {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRemedy = "; choose another one with REKINDLE_CACHE_DIR";

// A cache's own files are private; users share what lies in a tier.
constexpr const char* kRemedyBetweenUsers =
    "; choose another one with REKINDLE_CACHE_DIR, and share graphs through a directory of both with "
    "REKINDLE_REMOTE=file:///...";

Error failure(const std::string& what, const std::string& dir) {
  return io_error("cannot " + what + " cache directory " + dir + ": " + std::strerror(errno) + kRemedy);
}

Error distrust(const std::string& dir, const std::string& why) {
  return invalid_argument("cache directory " + dir + " " + why);
}

bool trusted_owner(const struct stat& info) { return info.st_uid == geteuid() || info.st_uid == 0; }

Status make_directories(const fs::path& dir) {
  if (dir.empty() || mkdir(dir.c_str(), 0700) == 0 || errno == EEXIST) return {};
  if (errno != ENOENT || dir == dir.parent_path()) return failure("create", dir.string());
  REKINDLE_RETURN_IF_ERROR(make_directories(dir.parent_path()));
  if (mkdir(dir.c_str(), 0700) == 0 || errno == EEXIST) return {};
  return failure("create", dir.string());
}

// Tells whether the effective user, who opens files, has this access (R_OK, W_OK, X_OK).
bool allows(const std::string& path, int access) {
  return faccessat(AT_FDCWD, path.c_str(), access, AT_EACCESS) == 0;
}

// Tells whether the cache that lies in `dir` is private to another user.
bool is_private_of_another(const std::string& dir) {
  const std::string file = dir + "/format";
  struct stat info;
  return lstat(file.c_str(), &info) == 0 && info.st_uid != geteuid() && !allows(file, R_OK);
}

Status check_trust(const CacheOptions& options, const struct stat& info) {
  const std::string& dir = options.dir;
  if (!S_ISDIR(info.st_mode)) return distrust(dir, std::string("is not a directory") + kRemedy);
  if (!options.allow_shared_dir && options.mode == CacheMode::kReadWrite && !trusted_owner(info)) {
    return distrust(dir, "belongs to user " + std::to_string(info.st_uid) + kRemedyBetweenUsers);
  }
  if (!options.allow_shared_dir && (info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return distrust(dir, "can be written by other users; run: chmod 700 " + dir +
                             ", or accept that with REKINDLE_ALLOW_SHARED_DIR=1");
  }
  if (!is_private_of_another(dir)) return {};
  return distrust(dir, std::string("holds private files of another user") + kRemedyBetweenUsers);
}

}  // namespace

Status follow_link(CacheOptions& options) {
  struct stat link;
  if (lstat(options.dir.c_str(), &link) != 0 || !S_ISLNK(link.st_mode)) return {};
  if (!options.allow_shared_dir && !trusted_owner(link)) {
    return distrust(options.dir, "is a link of user " + std::to_string(link.st_uid) + kRemedy);
  }
  std::error_code broken;
  const fs::path target = fs::canonical(options.dir, broken);
  if (broken) return distrust(options.dir, "is a link that leads to no directory" + std::string(kRemedy));
  options.dir = target.string();
  return {};
}

void keep_database_local(CacheOptions& options) {
  if (options.allow_network_database) return;
  const std::string type = options.filesystem_type(options.dir);
  if (!is_network_filesystem(type)) return;
  std::error_code unreadable;
  if (options.mode == CacheMode::kReadOnly && fs::exists(options.dir + "/db", unreadable)) return;
  const std::string local = node_local_dir(options.dir, options.filesystem_type);
  const std::string access = options.mode == CacheMode::kReadOnly ? " ro" : "";
  log_info("cache directory " + options.dir + " is on a network file system (" + type +
           "); the database is kept in " + local + " and the directory is shared as a tier");
  options.remote = "file://" + options.dir + access + (options.remote.empty() ? "" : ";" + options.remote);
  options.dir = local;
}

Result<CacheMode> prepare_directory(const CacheOptions& options) {
  const std::string& dir = options.dir;
  if (dir.empty()) return invalid_argument("the cache directory has an empty name");
  if (options.mode == CacheMode::kReadWrite) REKINDLE_RETURN_IF_ERROR(make_directories(dir));
  struct stat info;
  if (lstat(dir.c_str(), &info) != 0) {
    if (errno == ENOENT && options.mode == CacheMode::kReadOnly) return CacheMode::kReadOnly;
    return failure("use", dir);
  }
  REKINDLE_RETURN_IF_ERROR(check_trust(options, info));
  if (options.mode == CacheMode::kReadOnly || allows(dir, W_OK | X_OK)) return options.mode;
  if ((errno == EACCES || errno == EROFS) && allows(dir, R_OK | X_OK)) {
    log_info("cache directory " + dir + " cannot be written; it is used read-only");
    return CacheMode::kReadOnly;
  }
  return failure("write", dir);
}

std::uint64_t disk_bytes(const std::string& dir) {
  constexpr std::uint64_t kBlock = 512;  // of st_blocks
  const std::unique_ptr<DIR, int (*)(DIR*)> opened(opendir(dir.c_str()), closedir);
  if (opened == nullptr) return 0;
  std::uint64_t total = 0;
  while (const dirent* item = readdir(opened.get())) {
    const std::string_view name = item->d_name;
    struct stat info;
    if (name == "." || name == ".." ||
        fstatat(dirfd(opened.get()), item->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
      continue;
    }
    if (S_ISREG(info.st_mode)) total += static_cast<std::uint64_t>(info.st_blocks) * kBlock;
    if (S_ISDIR(info.st_mode)) total += disk_bytes(dir + "/" + item->d_name);
  }
  return total;
}

}  // namespace rekindle
