#include "cli/system_facts.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace rekindle::cli {
namespace {

// Blanks in mountinfo's paths are written as \040, and so on.
std::string unescaped(const std::string& text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool code = text[i] == '\\' && i + 3 < text.size();
    plain += code ? static_cast<char>(std::stoi(text.substr(i + 1, 3), nullptr, 8)) : text[i];
    i += code ? 3 : 0;
  }
  return plain;
}

bool lies_below(const std::string& path, const std::string& point) {
  if (point == "/" || path == point) return true;
  return path.starts_with(point) && path[point.size()] == '/';
}

// One line of /proc/self/mountinfo: "36 35 98:0 /root /point options [optional...] - type source options".
Mount parse_mount(const std::string& line) {
  std::istringstream words(line);
  std::string skipped, point, options, word;
  words >> skipped >> skipped >> skipped >> skipped >> point >> options;
  while (words >> word && word != "-") continue;
  Mount mount{.type = {},
              .point = unescaped(point),
              .readonly = ("," + options + ",").find(",ro,") != std::string::npos};
  words >> mount.type;
  return mount;
}

// "fe:00:10953506", as /proc/locks names a file.
std::string lock_name(const struct stat& info) {
  char name[64];
  std::snprintf(name, sizeof(name), "%02x:%02x:%lu", major(info.st_dev), minor(info.st_dev),
                static_cast<unsigned long>(info.st_ino));
  return name;
}

}  // namespace

Result<Mount> mount_of(const std::string& path) {
  std::error_code failed;
  const std::string real = std::filesystem::canonical(path, failed).string();
  if (failed) return io_error("cannot find " + path + ": " + failed.message());
  std::ifstream file("/proc/self/mountinfo");
  Mount best;
  for (std::string line; std::getline(file, line);) {
    Mount mount = parse_mount(line);
    // Of equal points the last one lies on top.
    if (lies_below(real, mount.point) && mount.point.size() >= best.point.size()) best = std::move(mount);
  }
  if (best.type.empty()) return io_error("/proc/self/mountinfo does not name the mount of " + path);
  return best;
}

std::vector<LockHolder> lock_holders(const std::string& path) {
  struct stat info;
  std::vector<LockHolder> holders;
  if (stat(path.c_str(), &info) != 0) return holders;
  const std::string wanted = lock_name(info);
  std::ifstream file("/proc/locks");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string number, kind, advice, mode, name;
    LockHolder holder;
    words >> number >> kind;
    if (kind == "->") {
      holder.waiting = true;
      words >> kind;
    }
    words >> advice >> mode >> holder.pid >> name;
    if (kind != "FLOCK" || name != wanted) continue;
    holder.exclusive = mode == "WRITE";
    holder.command = command_of(holder.pid);
    // The kernel hands the table out in pieces: a line comes again when
    // the locks before it change in between.
    if (std::ranges::find(holders, holder) == holders.end()) holders.push_back(std::move(holder));
  }
  return holders;
}

std::string command_of(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

}  // namespace rekindle::cli
