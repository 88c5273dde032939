// Journal: events of one process, appended to its own small file, so that a hit never writes the database.
//
//   journal := record*
//   record  := size:u32 event checksum:u64       size: of event, at most kMaxEventBytes
//   event   := kind:u8 time:i64 entry:16 bytes seconds:f64 code:string         string := length:u64 byte*
//
// A checksum is the XXH3-64 of its event; a kind is an EventKind.
// The first record that fails a check ends the file: a torn tail is ignored. Format version history: the file
// name's suffix, ".journal1".
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "export_cache/upkeep/usage.h"
#include "src/base/mutex.h"
#include "src/base/result.h"

namespace rekindle {

inline constexpr std::uint32_t kMaxEventBytes = 256;

// Thread-safe, and safe after fork: a child appends to a file of its own. Keeps no file open.
class Journal {
 public:
  // `dir` need not exist yet; it is made (0700) with the first event.
  explicit Journal(std::string dir);
  // kIo when the event could not be written; nothing is then left of it.
  Status append(const CacheEvent& event);

 private:
  Status append_once(const std::string& bytes, bool& retry);
  std::string new_name();

  const std::string dir_;
  Mutex mutex_;
  std::string name_;
  int pid_ = 0;
  std::uint32_t made_ = 0;
};

// How much lies in `dir` unfolded.
struct JournalLoad {
  std::size_t files = 0;
  std::uint64_t bytes = 0;
};
JournalLoad journal_load(const std::string& dir);

// Adds what the journals of `dir` hold beyond usage.folded. For readers in memory: nothing is changed on
// disk. Call it under the same shared lock as the read of `usage`.
void merge_journals(const std::string& dir, Usage& usage);

// Folds journals into a Usage that is about to be committed. Files stay locked until the fold is destroyed,
// so their owners start new ones meanwhile.
class JournalFold {
 public:
  // Adds like merge_journals and replaces usage.folded. Call it under the exclusive lock of the database.
  JournalFold(const std::string& dir, Usage& usage);
  ~JournalFold();
  JournalFold(const JournalFold&) = delete;
  JournalFold& operator=(const JournalFold&) = delete;

  // Deletes the folded files. Only after `usage` has been committed.
  void remove_files();

 private:
  struct File {
    std::string path;
    int fd;
  };
  std::vector<File> files_;
};

}  // namespace rekindle
