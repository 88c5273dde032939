#include "export_cache/tiers/view.h"

#include <cstring>

namespace rekindle {
namespace {

std::string full_key(Table table, const Digest& key) {
  return static_cast<char>(table) + std::string(key.view());
}

// False for a key that is none of ours.
bool split_key(std::string_view full, Digest& key) {
  if (full.size() != 1 + key.bytes.size()) return false;
  std::memcpy(key.bytes.data(), full.data() + 1, key.bytes.size());
  return true;
}

}  // namespace

Result<std::optional<std::string>> View::get(Table table, const Digest& key) {
  if (table == Table::kEntry) return objects_.read(key);
  const std::string full = full_key(table, key);
  if (const auto changed = batch_.find(full); changed != batch_.end()) return changed->second;
  REKINDLE_ASSIGN_OR_RETURN(Database * database, database_());
  if (database == nullptr) return std::optional<std::string>();
  return database->get(full);
}

Status View::for_each(Table table, const Visitor& visit) {
  if (table != Table::kEntry) return scan(table, visit);
  REKINDLE_ASSIGN_OR_RETURN(const std::vector<Digest> ids, objects_.ids());
  for (const Digest& id : ids) {
    REKINDLE_ASSIGN_OR_RETURN(const std::optional<std::string> object, objects_.read(id));
    if (object) visit(id, *object);
  }
  return {};
}

// The database merged with the changes.
Status View::scan(Table table, const Visitor& visit) {
  const char prefix = static_cast<char>(table);
  auto changed = batch_.lower_bound(std::string_view(&prefix, 1));
  const auto visit_changes_below = [&](std::string_view limit) {
    for (; changed != batch_.end() && changed->first[0] == prefix && changed->first < limit; ++changed) {
      Digest key;
      if (changed->second && split_key(changed->first, key)) visit(key, *changed->second);
    }
  };
  REKINDLE_ASSIGN_OR_RETURN(Database * database, database_());
  if (database != nullptr) {
    REKINDLE_RETURN_IF_ERROR(database->scan(prefix, [&](std::string_view full, std::string_view record) {
      visit_changes_below(full);
      Digest key;
      if (!batch_.contains(full) && split_key(full, key)) visit(key, record);
    }));
  }
  visit_changes_below(std::string(1, static_cast<char>(prefix + 1)));
  return {};
}

Result<std::vector<Digest>> View::keys(Table table) {
  if (table == Table::kEntry) return objects_.ids();
  std::vector<Digest> keys;
  REKINDLE_RETURN_IF_ERROR(scan(table, [&](const Digest& key, std::string_view) { keys.push_back(key); }));
  return keys;
}

void View::put(Table table, const Digest& key, std::string_view record) {
  if (table != Table::kEntry) {
    batch_[full_key(table, key)] = std::string(record);
  } else if (Status status = objects_.put(key, record); !status.ok() && failed_.ok()) {
    failed_ = status;
  }
}

void View::remove(Table table, const Digest& key) {
  if (table != Table::kEntry) {
    batch_[full_key(table, key)] = std::nullopt;
  } else {
    objects_.remove(key);
  }
}

Status View::commit(Database& database) {
  Status status = failed_;
  if (status.ok()) status = objects_.publish();
  if (status.ok()) status = database.commit(batch_);
  status.ok() ? objects_.discard() : objects_.undo();
  return status;
}

}  // namespace rekindle
