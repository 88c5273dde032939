#include "export_cache/upkeep/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <random>

#include "export_cache/files/files.h"
#include "export_cache/formats/record.h"
#include "src/base/bytes.h"
#include "src/base/digest.h"

namespace rekindle {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kJournalSuffix = ".journal1";
// Far above what a process writes between two folds; a larger file is not one of ours.
constexpr std::uintmax_t kMaxJournalBytes = 64 * 1024 * 1024;

std::string encode_event(const CacheEvent& event) {
  ByteWriter body;
  body.number(static_cast<std::uint8_t>(event.kind));
  body.number(event.time);
  body.raw(event.entry.view());
  body.number(event.seconds);
  body.string(std::string_view(event.code).substr(0, kMaxCodeBytes));
  ByteWriter record;
  record.number(static_cast<std::uint32_t>(body.bytes().size()));
  record.raw(body.bytes());
  record.number(checksum_of(body.bytes()));
  return std::move(record).take();
}

bool decode_event(std::string_view body, CacheEvent& event) {
  ByteReader reader(body);
  const auto kind = reader.number<std::uint8_t>();
  event.kind = static_cast<EventKind>(kind);
  event.time = reader.number<std::int64_t>();
  const std::string_view id = reader.raw(16);
  event.seconds = reader.number<double>();
  event.code = reader.string();
  if (!reader.at_end() || kind < 1 || kind > static_cast<std::uint8_t>(EventKind::kBypass)) return false;
  std::memcpy(event.entry.bytes.data(), id.data(), id.size());
  return event.code.size() <= kMaxCodeBytes && is_time(event.time) && is_amount(event.seconds);
}

void apply_events(std::string_view bytes, Usage& usage) {
  ByteReader reader(bytes);
  while (!reader.at_end()) {
    const auto size = reader.number<std::uint32_t>();
    if (size > kMaxEventBytes) return;
    const std::string_view body = reader.raw(size);
    const auto checksum = reader.number<std::uint64_t>();
    CacheEvent event;
    if (reader.failed() || checksum != checksum_of(body) || !decode_event(body, event)) return;
    usage.apply(event);
  }
}

std::string read_from(int fd, std::uint64_t offset) {
  struct stat info;
  if (fstat(fd, &info) != 0 || info.st_size < 0) return {};
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size <= offset || size > kMaxJournalBytes) return {};
  std::string bytes(size - offset, '\0');
  const ssize_t got = pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
  bytes.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  return bytes;
}

// std::nullopt when the directory cannot be listed; no directory: no journals.
std::optional<std::vector<std::string>> journal_names(const std::string& dir) {
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator it(dir, failed), end; !failed && it != end; it.increment(failed)) {
    std::string name = it->path().filename().string();
    if (name.ends_with(kJournalSuffix)) names.push_back(std::move(name));
  }
  if (failed && failed != std::errc::no_such_file_or_directory) return std::nullopt;
  return names;
}

std::uint64_t folded_bytes(const Usage& usage, const std::string& name) {
  const auto found = usage.folded.find(name);
  return found == usage.folded.end() ? 0 : found->second;
}

}  // namespace

Journal::Journal(std::string dir) : dir_(std::move(dir)) {}

std::string Journal::new_name() {
  // Random, because process ids return: in containers every process may be number 1.
  std::random_device random;
  return std::to_string(pid_) + "-" + std::to_string(made_++) + "-" + std::to_string(random()) +
         std::string(kJournalSuffix);
}

Status Journal::append(const CacheEvent& event) {
  const std::string bytes = encode_event(event);
  const std::lock_guard guard(mutex_);
  if (const int pid = getpid(); pid != pid_) {
    pid_ = pid;
    name_.clear();
  }
  constexpr int kAttempts = 5;  // each fold meets a process once, and may meet its new file too
  bool retry = true;
  Status status;
  for (int attempt = 0; attempt < kAttempts && retry; ++attempt) {
    status = append_once(bytes, retry);
    if (retry) name_.clear();
  }
  return status;
}

Status Journal::append_once(const std::string& bytes, bool& retry) {
  int flags = O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW;
  if (name_.empty()) {
    if (mkdir(dir_.c_str(), 0700) != 0 && errno != EEXIST) return system_error("create", dir_, errno);
    name_ = new_name();
    flags |= O_CREAT | O_EXCL;
  }
  const std::string path = dir_ + "/" + name_;
  const int fd = open(path.c_str(), flags, 0600);
  if (fd < 0) {
    retry = errno == ENOENT && !(flags & O_CREAT);
    return system_error("open", path, errno);
  }
  struct stat info;
  // Locked or unlinked: a writer is folding this file. A name is never
  // used again, its folded length is recorded.
  retry = flock(fd, LOCK_EX | LOCK_NB) != 0 || fstat(fd, &info) != 0 || info.st_nlink == 0;
  Status status;
  if (retry) {
    status = io_error("journal " + path + " is being folded");
  } else if (write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
    status = system_error("write", path, errno);
    // Half a record would hide all that follow.
    if (ftruncate(fd, info.st_size) != 0) name_.clear();
  }
  flock(fd, LOCK_UN);
  close(fd);
  return status;
}

JournalLoad journal_load(const std::string& dir) {
  JournalLoad load;
  for (const std::string& name : journal_names(dir).value_or(std::vector<std::string>())) {
    struct stat info;
    if (stat((dir + "/" + name).c_str(), &info) != 0) continue;
    ++load.files;
    load.bytes += static_cast<std::uint64_t>(info.st_size);
  }
  return load;
}

void merge_journals(const std::string& dir, Usage& usage) {
  for (const std::string& name : journal_names(dir).value_or(std::vector<std::string>())) {
    const int fd = open((dir + "/" + name).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) continue;
    apply_events(read_from(fd, folded_bytes(usage, name)), usage);
    close(fd);
  }
}

JournalFold::JournalFold(const std::string& dir, Usage& usage) {
  const auto names = journal_names(dir);
  if (!names) return;  // what is folded stays noted
  std::map<std::string, std::uint64_t> folded;
  for (const std::string& name : *names) {
    const std::string path = dir + "/" + name;
    const std::uint64_t before = folded_bytes(usage, name);
    if (before > 0) folded[name] = before;
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) continue;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {  // its owner is appending; the next fold takes it
      close(fd);
      continue;
    }
    files_.push_back({path, fd});
    const std::string bytes = read_from(fd, before);
    apply_events(bytes, usage);
    folded[name] = before + bytes.size();
  }
  usage.folded = std::move(folded);
}

void JournalFold::remove_files() {
  for (const File& file : files_) unlink(file.path.c_str());
}

JournalFold::~JournalFold() {
  for (const File& file : files_) {
    flock(file.fd, LOCK_UN);
    close(file.fd);
  }
}

}  // namespace rekindle
