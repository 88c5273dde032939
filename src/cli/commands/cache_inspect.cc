#include <fmt/core.h>

#include <ctime>

#include "src/cli/cache_flags.h"
#include "src/cli/command.h"
#include "src/cli/table.h"

namespace rekindle::cli {
namespace {

constexpr std::size_t kMostText = 100;

// The key fields that were stored with the entry; empty when it has none that can be read.
Json key_fields(const Entry& entry) {
  const auto section = entry.sections.find("fields");
  if (section == entry.sections.end()) return Json::array();
  const Json parsed = Json::parse(section->second, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object() || !parsed.contains("fields") || !parsed["fields"].is_array()) return Json::array();
  return parsed["fields"];
}

std::string text_of(const Json& field, const char* name) {
  const auto value = field.is_object() ? field.find(name) : field.end();
  return value != field.end() && value->is_string() ? printable(value->get<std::string>(), kMostText)
                                                    : std::string();
}

void print_human(const EntryInfo& info, const Json& fields) {
  const std::int64_t now = std::time(nullptr);
  std::vector<std::vector<std::string>> rows = {
      {"id", info.id.hex()},
      {"stored", age_text(info.created, now) + " ago, " + size_text(info.stored_bytes) + " for " +
                     size_text(info.raw_bytes)},
      {"used", std::to_string(info.hits) + " times, saved " + seconds_text(info.seconds_saved) +
                   (info.last_used == 0 ? "" : ", last " + age_text(info.last_used, now) + " ago")}};
  const MetaText meta(info);
  for (const auto& [name, value] : meta.json().items()) {
    rows.push_back({name, printable(meta[name], kMostText)});
  }
  for (const auto& [name, size] : info.sections) rows.push_back({"section " + name, size_text(size)});
  print_table(rows);
  if (fields.empty()) return;
  fmt::print("\nkey fields\n");
  rows.clear();
  for (const Json& field : fields) {
    rows.push_back({"  " + text_of(field, "name"), text_of(field, "type"), text_of(field, "value")});
  }
  print_table(rows);
}

class CacheInspect : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("id", prefix_, "Id of the entry, or the start of it")->required()->type_name("ID");
    flags_.declare(app);
  }

  int run() override {
    auto cache = flags_.open(CacheMode::kReadOnly);
    if (!cache.ok()) return fail(cache.error());
    auto id = (*cache)->find(prefix_);
    if (!id.ok()) return fail(id.error());
    auto entries = (*cache)->list();
    if (!entries.ok()) return fail(entries.error());
    auto entry = (*cache)->load(*id);
    if (!entry.ok()) return fail(entry.error());
    for (const EntryInfo& info : *entries) {
      if (info.id == *id && *entry) return print(info, **entry);
    }
    return fail(corruption("entry " + id->hex() + " is corrupt; the next training run exports it again"));
  }

 private:
  int print(const EntryInfo& info, const Entry& entry) const {
    const Json fields = key_fields(entry);
    if (!flags_.json) {
      print_human(info, fields);
      return kExitOk;
    }
    Json root = entry_json(info);
    root["fields"] = fields;
    print_json(root);
    return kExitOk;
  }

  std::string prefix_;
  CacheFlags flags_;
};

REKINDLE_COMMAND(cache, inspect, "Show one entry: description, sections, key fields", CacheInspect);

}  // namespace
}  // namespace rekindle::cli
