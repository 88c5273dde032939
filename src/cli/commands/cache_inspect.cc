#include <fmt/core.h>

#include <ctime>

#include "src/cli/cache_flags.h"
#include "src/cli/command.h"
#include "src/cli/table.h"

namespace rekindle::cli {
namespace {

constexpr std::size_t kMostText = 100;

Json fields_json(const LeafTree& tree) {
  Json fields = Json::array();
  for (const Leaf& leaf : tree.leaves) fields.push_back({{"name", leaf.path}, {"value", leaf.text}});
  return fields;
}

void print_human(const EntryInfo& info, const LeafTree& tree) {
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
  if (tree.empty()) return;
  fmt::print("\nkey fields and observations\n");
  rows.clear();
  for (const Leaf& leaf : tree.leaves) {
    rows.push_back({"  " + printable(leaf.path, kMostText), printable(leaf.text, kMostText)});
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
    auto leaves = (*cache)->leaves({*id});
    if (!leaves.ok()) return fail(leaves.error());
    for (const EntryInfo& info : *entries) {
      if (info.id == *id && *entry) return print(info, leaves->front());
    }
    return fail(corruption("entry " + id->hex() + " is corrupt; the next training run exports it again"));
  }

 private:
  int print(const EntryInfo& info, const LeafTree& tree) const {
    if (!flags_.json) {
      print_human(info, tree);
      return kExitOk;
    }
    Json root = entry_json(info);
    root["fields"] = fields_json(tree);
    print_json(root);
    return kExitOk;
  }

  std::string prefix_;
  CacheFlags flags_;
};

REKINDLE_COMMAND(cache, inspect, "Show one entry: description, sections, key fields", CacheInspect);

}  // namespace
}  // namespace rekindle::cli
