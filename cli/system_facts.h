// What the system knows about a directory: its mount, and who holds locks
// in it. Linux's /proc, read once per call.
#pragma once

#include <string>
#include <vector>

#include "src/base/result.h"

namespace rekindle::cli {

struct Mount {
  std::string type;   // "ext4", "nfs4", "fuse.sshfs"
  std::string point;  // where it is mounted
  bool readonly = false;
};

// The mount that `path`, which exists, lies on. kIo when /proc does not tell.
Result<Mount> mount_of(const std::string& path);

struct LockHolder {
  int pid = 0;          // 0 or -1: a process of another container
  std::string command;  // its name; empty when it is not visible from here
  bool exclusive = false;
  bool waiting = false;

  bool operator==(const LockHolder&) const = default;
};

// Who holds, or waits for, a flock on the file `path`, each once. Empty when there is no such file.
std::vector<LockHolder> lock_holders(const std::string& path);

// "python3"; empty when there is no process of that id here.
std::string command_of(int pid);

}  // namespace rekindle::cli
