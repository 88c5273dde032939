#include <fmt/core.h>

#include <algorithm>
#include <ctime>

#include "cli/cache_flags.h"
#include "cli/command.h"
#include "cli/table.h"
#include "src/pipeline/pipeline.h"

namespace rekindle::cli {
namespace {

constexpr std::size_t kMostValueText = 100;

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
    rows.push_back({name, printable(meta[name], kMostValueText)});
  }
  for (const auto& [name, size] : info.sections) rows.push_back({"section " + name, size_text(size)});
  print_table(rows);
  if (tree.empty()) return;
  fmt::print("\nkey fields and observations\n");
  rows.clear();
  for (const Leaf& leaf : tree.leaves) {
    rows.push_back({"  " + printable(leaf.path, kMostValueText), printable(leaf.text, kMostValueText)});
  }
  print_table(rows);
}

class CacheInspect : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("id", prefix_, "Id of the entry, or the start of it")->required()->type_name("ID");
    app.add_flag("--graph", graph_, "Also the differentiated graph, as text (docs/ir.md)");
    app.add_flag("--contract", contract_,
                 "Also how a call's tensors and the graph's inputs and outputs correspond");
    flags_.declare(app);
  }

  int run() override {
    auto cache = flags_.open(CacheMode::kReadOnly);
    if (!cache.ok()) return fail(cache.error());
    auto id = (*cache)->find(prefix_);
    if (!id.ok()) return fail(id.error());
    auto entries = (*cache)->list();
    if (!entries.ok()) return fail(entries.error());
    auto entry = load_entry(**cache, *id);
    if (!entry.ok()) return fail(entry.error());
    auto leaves = (*cache)->leaves({*id});
    if (!leaves.ok()) return fail(leaves.error());
    const auto info = std::ranges::find(*entries, *id, &EntryInfo::id);
    if (info == entries->end()) return fail(corrupt_entry(*id));
    return print(*info, *entry, leaves->front());
  }

 private:
  int print(const EntryInfo& info, const Entry& entry, const LeafTree& tree) const {
    Json parts;  // what was asked for besides
    if (graph_) {
      const auto text = graph_text(entry, info.id);
      if (!text.ok()) return fail(text.error());
      parts["graph"] = *text;
    }
    if (contract_) {
      const auto contract = section_of(entry, info.id, "contract");
      if (!contract.ok()) return fail(contract.error());
      parts["contract"] = Json::parse(*contract, nullptr, /*allow_exceptions=*/false);
      if (parts["contract"].is_discarded())
        return fail(corruption("the contract of " + info.id.hex() + " is no JSON"));
    }
    flags_.json ? print_all_json(info, tree, parts) : print_all(info, tree, parts);
    return kExitOk;
  }

  static Result<std::string> graph_text(const Entry& entry, const Digest& id) {
    REKINDLE_ASSIGN_OR_RETURN(const std::string joint, section_of(entry, id, "joint"));
    return pipeline::describe_joint_graph(joint);
  }

  static void print_all(const EntryInfo& info, const LeafTree& tree, const Json& parts) {
    print_human(info, tree);
    for (const auto& [name, part] : parts.items()) {
      fmt::print("\n{}\n{}\n", name, part.is_string() ? part.get<std::string>() : part.dump(2));
    }
  }

  static void print_all_json(const EntryInfo& info, const LeafTree& tree, const Json& parts) {
    Json root = entry_json(info);
    root["fields"] = fields_json(tree);
    for (const auto& [name, part] : parts.items()) root[name] = part;
    print_json(root);
  }

  std::string prefix_;
  bool graph_ = false, contract_ = false;
  CacheFlags flags_;
};

REKINDLE_COMMAND(cache, inspect, "Show one entry: description, sections, key fields", CacheInspect);

}  // namespace
}  // namespace rekindle::cli
