// View: what one call sees of a RocksDbTier: the database, the entries'
// files, and the changes not yet committed.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "export_cache/files/object_files.h"
#include "export_cache/tiers/database.h"
#include "export_cache/tiers/tier.h"

namespace rekindle {

class View : public TierWriter {
 public:
  // Asked for the database when it is first needed; null when there is none yet.
  using Opener = std::function<Result<Database*>()>;
  View(const ObjectFiles& objects, Opener database) : objects_(objects), database_(std::move(database)) {}

  Result<std::optional<std::string>> get(Table table, const Digest& key) override;
  Status for_each(Table table, const Visitor& visit) override;
  Result<std::vector<Digest>> keys(Table table) override;
  void put(Table table, const Digest& key, std::string_view record) override;
  void remove(Table table, const Digest& key) override;
  void note(std::uint64_t value) override { note_ = value; }

  // New entries first, then the records that name them, then the removal of old entries.
  Status commit(Database& database);
  std::uint64_t noted() const { return note_; }

 private:
  Status scan(Table table, const Visitor& visit);

  ObjectChanges objects_;
  const Opener database_;
  Database::Batch batch_;
  Status failed_;  // the first put that failed
  std::uint64_t note_ = 0;
};

}  // namespace rekindle
