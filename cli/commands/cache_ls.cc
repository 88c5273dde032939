#include <algorithm>
#include <ctime>

#include "cli/cache_flags.h"
#include "cli/choice.h"
#include "cli/command.h"
#include "cli/table.h"

namespace rekindle::cli {
namespace {

constexpr std::size_t kMostColumnText = 40;

class CacheLs : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("--model", model_, "Only entries of this class of model")->type_name("NAME");
    add_choice(app, "--sort", sort_, {"age", "saved", "size"},
               "Newest, most useful or largest first (default: age)");
    flags_.declare(app);
  }

  int run() override {
    auto cache = flags_.open(CacheMode::kReadOnly);
    if (!cache.ok()) return fail(cache.error());
    auto entries = (*cache)->list();
    if (!entries.ok()) return fail(entries.error());
    if (!model_.empty()) {
      std::erase_if(*entries, [&](const EntryInfo& info) { return MetaText(info)["model"] != model_; });
    }
    sort(*entries);
    flags_.json ? print_json_list((*cache)->dir(), *entries) : print_rows(*entries);
    return kExitOk;
  }

 private:
  // They come newest first, and stay so among equals.
  void sort(std::vector<EntryInfo>& entries) const {
    if (sort_ == "saved") std::ranges::stable_sort(entries, std::greater(), &EntryInfo::seconds_saved);
    if (sort_ == "size") std::ranges::stable_sort(entries, std::greater(), &EntryInfo::stored_bytes);
  }

  static void print_json_list(const std::string& dir, const std::vector<EntryInfo>& entries) {
    Json root;
    root["dir"] = dir;
    root["entries"] = Json::array();
    for (const EntryInfo& info : entries) root["entries"].push_back(entry_json(info));
    print_json(root);
  }

  static void print_rows(const std::vector<EntryInfo>& entries) {
    const std::int64_t now = std::time(nullptr);
    std::vector<std::vector<std::string>> rows = {
        {"ID", "MODEL", "MODE", "INPUTS", "SIZE", "HITS", "SAVED", "USED", "AGE"}};
    for (const EntryInfo& info : entries) {
      const MetaText meta(info);
      rows.push_back({short_id(info.id) + (info.pinned ? "*" : ""), printable(meta["model"], kMostColumnText),
                      printable(meta["mode"], kMostColumnText), printable(meta["inputs"], kMostColumnText),
                      size_text(info.stored_bytes), std::to_string(info.hits),
                      seconds_text(info.seconds_saved), age_text(info.last_used, now),
                      age_text(info.created, now)});
    }
    print_table(rows);
  }

  std::string model_, sort_ = "age";
  CacheFlags flags_;
};

REKINDLE_COMMAND(cache, ls, "List the entries, newest first", CacheLs);

}  // namespace
}  // namespace rekindle::cli
