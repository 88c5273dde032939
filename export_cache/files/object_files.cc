#include "export_cache/files/object_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "export_cache/formats/record.h"
#include "src/base/log.h"

namespace rekindle {
namespace {

namespace fs = std::filesystem;

// An entry record and a record of candidates, each incompressible.
constexpr std::uint64_t kMaxObjectBytes = 2 * (kMaxRawBytes + kRecordOverhead);

}  // namespace

Result<std::optional<std::string>> ObjectFiles::read(const Digest& id) const {
  auto bytes = read_file(path(id), kMaxObjectBytes);
  if (!bytes.ok() && bytes.error().code == ErrorCode::kCorruption) return std::optional<std::string>("");
  return bytes;
}

Result<std::vector<Digest>> ObjectFiles::ids() const {
  std::vector<Digest> ids;
  std::error_code failed;
  for (fs::directory_iterator it(dir_, failed), end; !failed && it != end; it.increment(failed)) {
    if (const auto id = Digest::from_hex(it->path().filename().string()); id.ok()) ids.push_back(*id);
  }
  if (failed && failed != std::errc::no_such_file_or_directory && failed != std::errc::not_a_directory) {
    return io_error("cannot read " + dir_ + ": " + failed.message());
  }
  std::ranges::sort(ids);
  return ids;
}

void ObjectFiles::sweep() const {
  std::error_code failed;  // what cannot be listed is swept another time
  for (fs::directory_iterator it(dir_, failed), end; !failed && it != end; it.increment(failed)) {
    if (it->path().filename().string().starts_with(kTemporaryPrefix)) unlink(it->path().c_str());
  }
}

Result<std::optional<std::string>> ObjectChanges::read(const Digest& id) const {
  if (const auto added = added_.find(id); added != added_.end()) {
    return std::optional<std::string>(added->second.bytes);
  }
  if (removed_.contains(id)) return std::optional<std::string>();
  return files_.read(id);
}

Result<std::vector<Digest>> ObjectChanges::ids() const {
  REKINDLE_ASSIGN_OR_RETURN(const std::vector<Digest> stored, files_.ids());
  std::set<Digest> ids(stored.begin(), stored.end());
  for (const Digest& id : removed_) ids.erase(id);
  for (const auto& [id, added] : added_) ids.insert(id);
  return std::vector<Digest>(ids.begin(), ids.end());
}

Status ObjectChanges::put(const Digest& id, std::string_view bytes) {
  if (mkdir(files_.dir().c_str(), 0700) != 0 && errno != EEXIST)
    return system_error("create", files_.dir(), errno);
  REKINDLE_ASSIGN_OR_RETURN(NewFile file, NewFile::create(files_.path(id), 0600));
  REKINDLE_RETURN_IF_ERROR(file.write(bytes));
  removed_.erase(id);
  added_.erase(id);
  added_.emplace(id, Added{std::move(file), std::string(bytes)});
  return {};
}

void ObjectChanges::remove(const Digest& id) {
  added_.erase(id);
  removed_.insert(id);
}

Status ObjectChanges::publish() {
  constexpr std::size_t kFew = 8;
  if (added_.size() > kFew) REKINDLE_RETURN_IF_ERROR(sync_file_system(files_.dir()));  // one wait for all
  for (auto& [id, added] : added_) {
    const std::string path = files_.path(id);
    added.replaces = access(path.c_str(), F_OK) == 0;
    // No file takes the place of a directory, which is none of ours.
    std::error_code failed;
    if (fs::is_directory(path, failed)) fs::remove_all(path, failed);
    REKINDLE_RETURN_IF_ERROR(added_.size() > kFew ? added.file.publish_unsynced() : added.file.publish());
    added.published = true;
  }
  return added_.empty() ? Status() : sync_directory(files_.dir());
}

void ObjectChanges::undo() {
  for (auto& [id, added] : added_) {
    if (added.published && !added.replaces) unlink(files_.path(id).c_str());
  }
}

void ObjectChanges::discard() {
  for (const Digest& id : removed_) {
    std::error_code failed;
    fs::remove_all(files_.path(id), failed);  // damage may have put a directory there
    if (failed) log_warning(system_error("delete", files_.path(id), failed.value()).message);
  }
}

}  // namespace rekindle
