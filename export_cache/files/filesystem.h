// Which kind of file system a path is on. RocksDB and OS locks need one that this machine alone changes.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace rekindle {

// The type of the file system of `path`, or of its nearest ancestor that exists, as mount(8) names it:
// "ext4", "nfs4", "fuse.sshfs"; empty when it cannot be told.
std::string filesystem_type(const std::string& path);
using FilesystemProbe = std::function<std::string(const std::string& path)>;

// Whether other machines may write to a file system of this type. True for
// every "fuse" that is not known to be local.
bool is_network_filesystem(std::string_view type);

// What mountinfo(5) text says of an absolute path without links: the type of its longest mount point.
std::string mount_type(std::string_view mountinfo, const std::string& path);

// A directory for the database of the cache in `shared_dir`, on a disk of this machine: below $XDG_CACHE_HOME
// or the home when those are local, else below /var/tmp/rekindle-<uid>. Another one for each `shared_dir`.
std::string node_local_dir(const std::string& shared_dir, const FilesystemProbe& probe);

}  // namespace rekindle
