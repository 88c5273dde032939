// The tier "file": a directory that machines share, local or on a network file system. Files are 0444,
// directories have the permissions of the root, so a root of mode 2775 is shared by a group. Every file
// appears by a rename.
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

#include "export_cache/files/files.h"
#include "export_cache/tiers/remote_tier.h"

namespace rekindle {
namespace {

class DirectoryTier : public RemoteTier {
 public:
  explicit DirectoryTier(std::string root) : root_(std::move(root)) {}

  Result<std::optional<std::string>> get(Space space, const Digest& key) override {
    return read_file(path(space, key), kMostStoredBytes);
  }

  Status put(Space space, const Digest& key, std::string_view bytes) override {
    REKINDLE_RETURN_IF_ERROR(make_directory(space));
    REKINDLE_ASSIGN_OR_RETURN(NewFile file, NewFile::create(path(space, key), 0444));
    REKINDLE_RETURN_IF_ERROR(file.write(bytes));
    return file.publish();
  }

 private:
  std::string directory(Space space) const { return root_ + "/" + space_name(space); }
  std::string path(Space space, const Digest& key) const { return directory(space) + "/" + key.hex(); }

  // Below the root, which is made by whoever decides who shares it.
  Status make_directory(Space space) const {
    struct stat root;
    if (stat(root_.c_str(), &root) != 0) return system_error("use", root_, errno);
    const std::string dir = directory(space);
    if (mkdir(dir.c_str(), 0700) != 0) {
      return errno == EEXIST ? Status() : Status(system_error("create", dir, errno));
    }
    if (chmod(dir.c_str(), root.st_mode & 07777) != 0)
      return system_error("set the permissions of", dir, errno);
    return {};
  }

  const std::string root_;
};

Result<std::unique_ptr<RemoteTier>> make_directory_tier(const std::string& place) {
  if (!std::filesystem::path(place).is_absolute()) {
    return invalid_argument("'file://" + place +
                            "' is not an absolute path; write it like file:///shared/rekindle");
  }
  return std::unique_ptr<RemoteTier>(std::make_unique<DirectoryTier>(place));
}

REKINDLE_TIER("file", make_directory_tier);

}  // namespace
}  // namespace rekindle
