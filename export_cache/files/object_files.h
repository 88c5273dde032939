// ObjectFiles: the bytes of entries, each in a file of its own named by the entry's id, so that a damaged one
// harms no other, readers need no database and no lock, and a removed one gives its space back at once.
//
// Thread rule: reads may come from anywhere at any time. Writes come from the
// holder of the exclusive lock of the cache.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "export_cache/files/files.h"
#include "src/base/digest.h"
#include "src/base/result.h"

namespace rekindle {

class ObjectFiles {
 public:
  explicit ObjectFiles(std::string dir) : dir_(std::move(dir)) {}

  // std::nullopt when there is none. A file that cannot be an object, by its size or type, is empty bytes.
  Result<std::optional<std::string>> read(const Digest& id) const;
  // Ascending. Empty when the directory is missing.
  Result<std::vector<Digest>> ids() const;
  // Removes what killed writers left.
  void sweep() const;

  std::string path(const Digest& id) const { return dir_ + "/" + id.hex(); }
  const std::string& dir() const { return dir_; }

 private:
  const std::string dir_;
};

// The changes of one update: on disk, but under no name until publish. Destroyed before, it leaves nothing.
class ObjectChanges {
 public:
  explicit ObjectChanges(const ObjectFiles& files) : files_(files) {}

  Result<std::optional<std::string>> read(const Digest& id) const;  // with the changes
  Result<std::vector<Digest>> ids() const;                          // likewise
  Status put(const Digest& id, std::string_view bytes);
  void remove(const Digest& id);

  // Gives the new files their names, durably. On an Error, and after undo, the files are as before.
  Status publish();
  void undo();
  // Deletes the files of what was removed. After the records that name them are gone.
  void discard();

 private:
  struct Added {
    NewFile file;
    std::string bytes;
    bool published = false;
    bool replaces = false;
  };
  const ObjectFiles& files_;
  std::map<Digest, Added> added_;
  std::set<Digest> removed_;
};

}  // namespace rekindle
