#include "export_cache/files/filesystem.h"

#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "export_cache/options.h"
#include "src/base/digest.h"

namespace rekindle {
namespace {

namespace fs = std::filesystem;

// Characters that mountinfo writes as \ooo.
std::string unescaped(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 3 >= text.size()) {
      out += text[i];
      continue;
    }
    out += static_cast<char>(std::stoi(text.substr(i + 1, 3), nullptr, 8));
    i += 3;
  }
  return out;
}

bool lies_in(const std::string& path, const std::string& mount) {
  return mount == "/" || path == mount || path.starts_with(mount + "/");
}

// Where mountinfo cannot be read: by statfs, for the network ones alone.
std::string type_by_magic(const std::string& path) {
  constexpr std::array<std::pair<std::uint32_t, const char*>, 11> kMagics = {{{0x6969, "nfs"},
                                                                              {0xFF534D42, "cifs"},
                                                                              {0xFE534D42, "smb3"},
                                                                              {0x517B, "smbfs"},
                                                                              {0x0BD00BD0, "lustre"},
                                                                              {0x47504653, "gpfs"},
                                                                              {0x01021997, "9p"},
                                                                              {0x65735546, "fuse"},
                                                                              {0x00C36400, "ceph"},
                                                                              {0x5346414F, "afs"},
                                                                              {0x19830326, "beegfs"}}};
  struct statfs info;
  if (statfs(path.c_str(), &info) != 0) return {};
  for (const auto& [magic, name] : kMagics) {
    if (static_cast<std::uint32_t>(info.f_type) == magic) return name;
  }
  return {};
}

}  // namespace

std::string mount_type(std::string_view mountinfo, const std::string& path) {
  std::istringstream lines{std::string(mountinfo)};
  std::string line, best_mount, best_type;
  while (std::getline(lines, line)) {
    std::istringstream fields(line);
    std::string id, parent, device, root, mount, word;
    if (!(fields >> id >> parent >> device >> root >> mount)) continue;
    while (fields >> word && word != "-") continue;
    std::string type;
    if (!(fields >> type)) continue;
    mount = unescaped(mount);
    // Of two mounts on one point the later one is seen.
    if (lies_in(path, mount) && mount.size() >= best_mount.size()) {
      best_mount = mount;
      best_type = type;
    }
  }
  return best_type;
}

std::string filesystem_type(const std::string& path) {
  std::error_code failed;
  fs::path existing = fs::weakly_canonical(fs::absolute(path, failed), failed);
  if (failed) existing = path;
  while (!fs::exists(existing, failed) && existing != existing.parent_path())
    existing = existing.parent_path();
  std::ifstream file("/proc/self/mountinfo");
  std::ostringstream text;
  text << file.rdbuf();
  const std::string type = mount_type(text.str(), existing.string());
  return type.empty() ? type_by_magic(existing.string()) : type;
}

bool is_network_filesystem(std::string_view type) {
  constexpr std::array kNetwork = {
      "nfs",  "nfs4",     "cifs",         "smb3",      "smbfs",    "lustre", "gpfs",   "9p",    "ceph",
      "afs",  "beegfs",   "beegfs_nodev", "glusterfs", "orangefs", "pvfs2",  "wekafs", "panfs", "ocfs2",
      "gfs2", "virtiofs", "vboxsf",       "prl_fs",    "ncpfs",    "coda",   "fuse"};
  constexpr std::array kLocalFuse = {"fuse.fuse-overlayfs", "fuse.mergerfs", "fuse.ntfs-3g",
                                     "fuse.bindfs",         "fuse.ntfs",     "fuse.exfat",
                                     "fuse.encfs",          "fuse.gocryptfs"};
  if (std::ranges::find(kNetwork, type) != kNetwork.end()) return true;
  return type.starts_with("fuse.") && std::ranges::find(kLocalFuse, type) == kLocalFuse.end();
}

std::string node_local_dir(const std::string& shared_dir, const FilesystemProbe& probe) {
  const std::string name = "/of-" + digest_of(shared_dir).hex().substr(0, 16);
  const std::vector<std::string> choices = user_cache_dirs();
  for (const std::string& choice : choices) {
    if (!is_network_filesystem(probe(choice))) return choice + name;
  }
  return choices.back() + name;
}

}  // namespace rekindle
