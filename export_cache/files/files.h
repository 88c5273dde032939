// Files, read whole and written so that nobody ever sees half of one. Descriptors are close-on-exec, links
// are not followed.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "src/base/result.h"

namespace rekindle {

// Names of files that are not in place yet begin so; a killed writer leaves them behind.
inline constexpr std::string_view kTemporaryPrefix = ".tmp-";

// kIo: "cannot <verb> <path>: <errno's text>", with the remedy for full
// disks, quotas, and too many open files.
Error system_error(const std::string& verb, const std::string& path, int error_number);

// std::nullopt when there is none. kIo when the system refuses; kCorruption, unread, above `most` bytes.
Result<std::optional<std::string>> read_file(const std::string& path, std::uint64_t most);

// Makes what happened to the names in `dir` durable.
Status sync_directory(const std::string& dir);

// Makes everything written to the file system of `dir` durable.
Status sync_file_system(const std::string& dir);

// A file that appears under its name as a whole or not at all. Not thread-safe;
// destroyed before publish, it leaves nothing.
class NewFile {
 public:
  // Beside `target`, with permissions `mode` whatever the umask says.
  static Result<NewFile> create(const std::string& target, mode_t mode);
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();

  Status write(std::string_view bytes);
  // Makes the bytes durable. Called by publish; early when the wait should not happen there.
  Status sync();
  // Replaces `target`. The name is durable after a sync_directory.
  Status publish();
  // For what may be lost when the machine stops.
  Status publish_unsynced();

 private:
  NewFile(std::string target, std::string path, int fd)
      : target_(std::move(target)), path_(std::move(path)), fd_(fd) {}

  std::string target_, path_;  // path_ is empty once published
  int fd_ = -1;
  bool synced_ = true;
};

// create, write, publish, sync_directory.
Status write_file(const std::string& path, std::string_view bytes, mode_t mode);

}  // namespace rekindle
