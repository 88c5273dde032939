#include "cli/checkup.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "cli/system_facts.h"
#include "cli/table.h"
#include "export_cache/export_cache.h"
#include "export_cache/files/filesystem.h"
#include "export_cache/files/format.h"
#include "export_cache/formats/record.h"

namespace rekindle::cli {
namespace {

namespace fs = std::filesystem;

// Free bytes; with less the disk is reported as full, since an entry and what the database writes beside it
// may not fit.
constexpr std::uint64_t kLittleSpace = 256 << 20;
// Files; ExportCache::maintain() folds them from 64 on, so that so many mean that none has been folded for
// long.
constexpr std::size_t kManyJournals = 1000;
constexpr const char* kElsewhere = "name another directory with REKINDLE_CACHE_DIR or --dir";

struct Pile {
  std::size_t files = 0;
  std::uint64_t bytes = 0;
};

// Regular files below `path` whose path from there starts with `prefix`.
Pile pile_of(const fs::path& path, const std::string& prefix = "") {
  Pile pile;
  std::error_code failed;
  for (fs::recursive_directory_iterator it(path, failed), end; !failed && it != end; it.increment(failed)) {
    std::error_code gone;  // files come and go beside us
    if (!it->is_regular_file(gone) || !it->path().lexically_relative(path).string().starts_with(prefix))
      continue;
    const std::uintmax_t size = it->file_size(gone);
    if (gone) continue;
    ++pile.files;
    pile.bytes += size;
  }
  return pile;
}

std::string text_of(const Pile& pile) {
  return fmt::format("{} files, {}", pile.files, size_text(pile.bytes));
}

Finding check_owner(const struct stat& info) {
  const std::string value = fmt::format("user {}, you are {}", info.st_uid, geteuid());
  if (info.st_uid == geteuid() || info.st_uid == 0) return {"owner", value};
  return {"owner", value, Verdict::kWrong,
          std::string("Training as you refuses to write here: another user could change what you run; ") +
              kElsewhere};
}

Finding check_mode(const std::string& dir, const struct stat& info) {
  const std::string value = fmt::format("{:04o}", info.st_mode & 07777);
  if ((info.st_mode & S_IWOTH) != 0) {
    return {"mode", value, Verdict::kWrong,
            "Every user may write here, so it is refused; run: chmod 700 " + dir};
  }
  if ((info.st_mode & S_IWGRP) == 0) return {"mode", value};
  return {"mode", value, Verdict::kNote,
          "Its group may change what you run; to keep it to yourself: chmod 700 " + dir};
}

// What lies at the root of a cache and cannot be read and written; empty where there is nothing such.
std::string closed_part(const std::string& dir) {
  for (const std::string_view name : kCacheNames) {
    const std::string path = dir + "/" + std::string(name);
    struct stat info;
    if (stat(path.c_str(), &info) != 0) continue;
    if (access(path.c_str(), R_OK | W_OK | (S_ISDIR(info.st_mode) ? X_OK : 0)) != 0) return path;
  }
  return {};
}

Finding check_access(const std::string& dir) {
  if (access(dir.c_str(), R_OK | W_OK | X_OK) == 0) {
    const std::string closed = closed_part(dir);
    if (closed.empty()) return {"access", "read and write"};
    return {"access", "not to " + closed, Verdict::kWrong,
            "Without it the cache is not used; run: chmod -R u+rwX " + dir};
  }
  const std::string why = std::strerror(errno);
  if (access(dir.c_str(), R_OK | X_OK) == 0) {
    return {"access", "read only", Verdict::kNote,
            "Entries are used but none is added (" + why +
                "); set REKINDLE_CACHE=readonly to say that this is meant"};
  }
  return {"access", "none", Verdict::kWrong, "It cannot be read: " + why + "; " + kElsewhere};
}

Finding check_file_system(const std::string& dir) {
  const auto mount = mount_of(dir);
  if (!mount.ok()) return {"file system", "unknown", Verdict::kNote, mount.error().message};
  const std::string value = mount->type + " on " + mount->point;
  if (is_network_filesystem(mount->type)) {
    return {"file system", value, Verdict::kWrong,
            "The database needs a local disk: locks of a network file system do not reach other machines; "
            "use a local directory"};
  }
  if (mount->type == "tmpfs") {
    return {"file system", value, Verdict::kNote, "It is in memory: entries are gone after a restart"};
  }
  if (mount->readonly) {
    return {"file system", value + ", read-only", Verdict::kNote, "Entries are used but none is added"};
  }
  return {"file system", value};
}

Finding check_space(const std::string& dir) {
  struct statvfs info;
  if (statvfs(dir.c_str(), &info) != 0)
    return {"free space", "unknown", Verdict::kNote, std::strerror(errno)};
  const std::uint64_t free = std::uint64_t{info.f_bavail} * info.f_frsize;
  const std::string value =
      fmt::format("{} of {}", size_text(free), size_text(std::uint64_t{info.f_blocks} * info.f_frsize));
  if (info.f_files > 0 && info.f_favail == 0) {
    return {"free space", value + ", no free inodes", Verdict::kWrong,
            "No file can be made; remove files on this disk"};
  }
  if (free >= kLittleSpace) return {"free space", value};
  return {"free space", value, Verdict::kWrong,
          "Exports will not be stored; make room, or run: rekindle cache prune --max-size <less>"};
}

std::string text_of(const LockHolder& holder) {
  const char* what = holder.waiting ? "wanted" : holder.exclusive ? "held for writing" : "held for reading";
  if (holder.command.empty()) return fmt::format("{} by a process of another container", what);
  return fmt::format("{} by {} (pid {})", what, holder.command, holder.pid);
}

Finding check_lock(const std::string& dir) {
  std::string value;
  for (const LockHolder& holder : lock_holders(dir + "/rekindle.lock")) {
    value += (value.empty() ? "" : ", ") + text_of(holder);
  }
  if (value.empty()) return {"lock", "free"};
  return {"lock", value, Verdict::kNote,
          "Locks are held for one operation and end with their process; "
          "if this stays for seconds, look at that process"};
}

Finding check_exports(const std::string& dir) {
  std::string value;
  std::error_code failed;  // no directory: no exports
  for (fs::directory_iterator it(dir + "/inflight", failed), end; !failed && it != end;
       it.increment(failed)) {
    for (const LockHolder& holder : lock_holders(it->path().string())) {
      if (holder.waiting) continue;
      value += (value.empty() ? "" : ", ") + it->path().filename().string().substr(0, 12) + " by " +
               (holder.command.empty() ? "another container"
                                       : fmt::format("{} (pid {})", holder.command, holder.pid));
    }
  }
  return {"exports under way", value.empty() ? "none" : value};
}

Finding check_journals(const std::string& dir) {
  const Pile pile = pile_of(dir + "/journal");
  if (pile.files < kManyJournals) return {"journals", text_of(pile)};
  return {
      "journals", text_of(pile), Verdict::kNote,
      "Nothing was stored for long, so nothing folded them; run: rekindle cache prune --unused-since 365d"};
}

Finding check_quarantine(const std::string& dir) {
  const Pile pile = pile_of(dir, "quarantine-");
  if (pile.files == 0) return {"quarantine", "none"};
  return {
      "quarantine", text_of(pile), Verdict::kNote,
      "A damaged database was set aside and rebuilt from the entries. Look for disk errors; when not needed "
      "any more: rm -r " +
          dir + "/quarantine-*"};
}

Finding check_database(const std::string& dir) {
  const auto cache = ExportCache::open({.dir = dir, .mode = CacheMode::kReadOnly});
  if (!cache.ok()) return {"database", "refused", Verdict::kWrong, cache.error().message};
  const auto stats = (*cache)->stats();
  if (!stats.ok()) return {"database", "cannot be read", Verdict::kWrong, stats.error().message};
  const std::string value = fmt::format("{} entries, {}", stats->entries, size_text(stats->bytes));
  if (stats->corrupt == 0) return {"database", value};
  return {
      "database", value, Verdict::kNote,
      fmt::format(
          "{} records failed a check so far and were dropped; for what is there now: rekindle cache verify",
          stats->corrupt)};
}

Finding check_directory(const std::string& dir, bool& usable) {
  struct stat info;
  usable = stat(dir.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  if (usable) return {"directory", dir};
  if (errno == ENOENT) {
    return {"directory", dir, Verdict::kNote, "It does not exist; the first export makes it"};
  }
  return {"directory", dir, Verdict::kWrong, std::string("It is no directory; ") + kElsewhere};
}

}  // namespace

const char* verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kFine:
      return "ok";
    case Verdict::kNote:
      return "note";
    case Verdict::kWrong:
      return "wrong";
  }
  return "unknown";
}

std::vector<Finding> examine(const std::string& dir) {
  std::vector<Finding> findings = {
      {"version", fmt::format("rekindle {}, record format {}", REKINDLE_VERSION, kRecordVersion)}};
  bool usable = false;
  findings.push_back(check_directory(dir, usable));
  struct stat info;
  if (!usable || stat(dir.c_str(), &info) != 0) return findings;
  findings.push_back(check_owner(info));
  findings.push_back(check_mode(dir, info));
  for (const auto check : {check_access, check_file_system, check_space, check_lock, check_exports,
                           check_journals, check_quarantine, check_database}) {
    findings.push_back(check(dir));
  }
  return findings;
}

}  // namespace rekindle::cli
