#include "export_cache/misses/miss_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "export_cache/files/files.h"
#include "export_cache/formats/record.h"
#include "src/base/bytes.h"

namespace rekindle {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMissSuffix = ".miss1";
constexpr std::size_t kMaxFileBytes = 1024 * 1024;

void cut(std::string& text) {
  if (text.size() <= kMaxMissText) return;
  std::size_t end = kMaxMissText;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  text.resize(end);
}

std::string encode(const Miss& miss) {
  ByteWriter writer;
  writer.number(miss.time);
  writer.string(miss.model);
  writer.string(miss.reason);
  writer.raw(miss.prekey.view());
  writer.raw(miss.nearest.view());
  writer.number(miss.nearest_created);
  for (const std::uint64_t number : {miss.equal, miss.total, miss.omitted}) writer.number(number);
  writer.number<std::uint64_t>(miss.differences.size());
  for (const Difference& difference : miss.differences) {
    writer.string(difference.path);
    writer.string(difference.before);
    writer.string(difference.after);
    writer.number(difference.places);
  }
  return std::move(writer).take();
}

bool decode(std::string_view raw, Miss& miss) {
  ByteReader reader(raw);
  miss.time = reader.number<std::int64_t>();
  miss.model = reader.string();
  miss.reason = reader.string();
  miss.prekey = read_digest(reader);
  miss.nearest = read_digest(reader);
  miss.nearest_created = reader.number<std::int64_t>();
  for (std::uint64_t* number : {&miss.equal, &miss.total, &miss.omitted}) {
    *number = reader.number<std::uint64_t>();
  }
  const std::uint64_t count = reader.count(4 * sizeof(std::uint64_t));
  if (count > kMaxMissDifferences) return false;
  for (std::uint64_t i = 0; i < count && !reader.failed(); ++i) {
    Difference difference;
    difference.path = reader.string();
    difference.before = reader.string();
    difference.after = reader.string();
    difference.places = reader.number<std::uint64_t>();
    miss.differences.push_back(std::move(difference));
  }
  return reader.at_end();
}

// Oldest first: names begin with the time, in a fixed width.
std::vector<std::string> file_names(const std::string& dir) {
  std::vector<std::string> names;
  std::error_code failed;  // no directory: no misses
  for (fs::directory_iterator it(dir, failed), end; !failed && it != end; it.increment(failed)) {
    std::string name = it->path().filename().string();
    if (name.ends_with(kMissSuffix)) names.push_back(std::move(name));
  }
  std::ranges::sort(names);
  return names;
}

std::string new_name() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::string time = std::to_string(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
  time.insert(0, 20 - std::min<std::size_t>(20, time.size()), '0');
  std::random_device random;  // process ids return: in containers every process may be number 1
  return time + "-" + std::to_string(getpid()) + "-" + std::to_string(random());
}

// Under its name only once it is whole.
Status write_file(const std::string& path, const std::string& bytes) {
  const std::string unfinished = path + ".new";
  const int fd = open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return system_error("create", unfinished, errno);
  const bool written = write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
  const std::string final_name = path + std::string(kMissSuffix);
  close(fd);
  if (written && rename(unfinished.c_str(), final_name.c_str()) == 0) return {};
  const Error error = system_error("write", path, errno);
  unlink(unfinished.c_str());
  return error;
}

std::string read_miss(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return {};
  std::string bytes(kMaxFileBytes, '\0');
  const ssize_t got = read(fd, bytes.data(), bytes.size());
  close(fd);
  bytes.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  return bytes;
}

}  // namespace

Status log_miss(const std::string& dir, Miss miss) {
  if (miss.differences.size() > kMaxMissDifferences) {
    miss.omitted += miss.differences.size() - kMaxMissDifferences;
    miss.differences.resize(kMaxMissDifferences);
  }
  cut(miss.model);
  cut(miss.reason);
  for (Difference& difference : miss.differences) {
    cut(difference.path);
    cut(difference.before);
    cut(difference.after);
  }
  REKINDLE_ASSIGN_OR_RETURN(const std::string record,
                            encode_record(RecordKind::kMiss, Digest{}, encode(miss)));
  if (mkdir(dir.c_str(), 0700) != 0 && errno != EEXIST) return system_error("create", dir, errno);
  REKINDLE_RETURN_IF_ERROR(write_file(dir + "/" + new_name(), record));
  const std::vector<std::string> names = file_names(dir);
  for (std::size_t i = 0; i + kMaxMisses < names.size(); ++i) unlink((dir + "/" + names[i]).c_str());
  return {};
}

std::vector<Miss> read_misses(const std::string& dir) {
  std::vector<Miss> misses;
  for (const std::string& name : file_names(dir)) {
    const auto raw = decode_record(read_miss(dir + "/" + name), RecordKind::kMiss, Digest{});
    Miss miss;
    if (raw.ok() && raw->size() <= kMaxFileBytes && decode(*raw, miss)) misses.push_back(std::move(miss));
  }
  std::ranges::reverse(misses);
  return misses;
}

void clear_misses(const std::string& dir) {
  for (const std::string& name : file_names(dir)) unlink((dir + "/" + name).c_str());
}

}  // namespace rekindle
