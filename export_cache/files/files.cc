#include "export_cache/files/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>

namespace rekindle {
namespace {

std::string remedy(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return "; free some space, or let the cache keep less with REKINDLE_CACHE_SIZE";
    case EMFILE:
    case ENFILE:
      return "; raise the limit on open files (ulimit -n)";
    case EROFS:
    case EACCES:
    case EPERM:
      return "; choose a directory that can be written with REKINDLE_CACHE_DIR";
    default:
      return "";
  }
}

std::string temporary_name(const std::string& target) {
  const std::filesystem::path path(target);
  std::random_device random;  // process ids return, and several hosts may share the directory
  const std::string name =
      std::string(kTemporaryPrefix) + std::to_string(getpid()) + "-" + std::to_string(random());
  return (path.parent_path() / name).string();
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

Error system_error(const std::string& verb, const std::string& path, int error_number) {
  return io_error("cannot " + verb + " " + path + ": " + std::strerror(error_number) + remedy(error_number));
}

Result<std::optional<std::string>> read_file(const std::string& path, std::uint64_t most) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.get() < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::optional<std::string>();
    return system_error("open", path, errno);
  }
  struct stat info;
  if (fstat(file.get(), &info) != 0) return system_error("read", path, errno);
  if (!S_ISREG(info.st_mode)) return corruption(path + " is not a file");
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size > most) return corruption(path + " has " + std::to_string(size) + " bytes, more than it can have");
  std::string bytes(size, '\0');
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = read(file.get(), bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("read", path, errno);
    if (got == 0) break;  // it shrank
    done += static_cast<std::size_t>(got);
  }
  bytes.resize(done);
  return std::optional<std::string>(std::move(bytes));
}

Status sync_directory(const std::string& dir) {
  const Descriptor opened(open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.get() < 0) return system_error("open", dir, errno);
  // Some file systems cannot sync a directory and need not.
  if (fsync(opened.get()) != 0 && errno != EINVAL && errno != ENOTSUP)
    return system_error("sync", dir, errno);
  return {};
}

Status sync_file_system(const std::string& dir) {
  const Descriptor opened(open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.get() < 0) return system_error("open", dir, errno);
  if (syncfs(opened.get()) != 0) return system_error("sync", dir, errno);
  return {};
}

Result<NewFile> NewFile::create(const std::string& target, mode_t mode) {
  const std::string path = temporary_name(target);
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return system_error("write", target, errno);
  NewFile file(target, path, fd);
  if (mode != 0600 && fchmod(fd, mode) != 0) return system_error("set the permissions of", target, errno);
  return file;
}

NewFile::NewFile(NewFile&& other) noexcept
    : target_(std::move(other.target_)),
      path_(std::exchange(other.path_, {})),
      fd_(std::exchange(other.fd_, -1)),
      synced_(other.synced_) {}

NewFile::~NewFile() {
  if (fd_ >= 0) close(fd_);
  if (!path_.empty()) unlink(path_.c_str());
}

Status NewFile::write(std::string_view bytes) {
  synced_ = false;
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd_, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return system_error("write", target_, errno);
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
  return {};
}

Status NewFile::sync() {
  if (!std::exchange(synced_, true) && fsync(fd_) != 0) return system_error("write", target_, errno);
  return {};
}

Status NewFile::publish() {
  REKINDLE_RETURN_IF_ERROR(sync());
  return publish_unsynced();
}

Status NewFile::publish_unsynced() {
  if (rename(path_.c_str(), target_.c_str()) != 0) return system_error("write", target_, errno);
  path_.clear();
  return {};
}

Status write_file(const std::string& path, std::string_view bytes, mode_t mode) {
  REKINDLE_ASSIGN_OR_RETURN(NewFile file, NewFile::create(path, mode));
  REKINDLE_RETURN_IF_ERROR(file.write(bytes));
  REKINDLE_RETURN_IF_ERROR(file.publish());
  return sync_directory(std::filesystem::path(path).parent_path().string());
}

}  // namespace rekindle
