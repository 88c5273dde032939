#include <ctime>

#include "src/cli/cache_flags.h"
#include "src/cli/command.h"
#include "src/cli/table.h"

namespace rekindle::cli {
namespace {

constexpr std::size_t kMostText = 40;

class CacheLs : public Command {
 public:
  void declare(CLI::App& app) override { flags_.declare(app); }

  int run() override {
    auto cache = flags_.open(CacheMode::kReadOnly);
    if (!cache.ok()) return fail(cache.error());
    auto entries = (*cache)->list();
    if (!entries.ok()) return fail(entries.error());
    if (flags_.json) {
      Json root;
      root["dir"] = (*cache)->dir();
      root["entries"] = Json::array();
      for (const EntryInfo& info : *entries) root["entries"].push_back(entry_json(info));
      print_json(root);
      return kExitOk;
    }
    const std::int64_t now = std::time(nullptr);
    std::vector<std::vector<std::string>> rows = {
        {"ID", "MODEL", "MODE", "INPUTS", "SIZE", "HITS", "SAVED", "AGE"}};
    for (const EntryInfo& info : *entries) {
      rows.push_back({info.id.hex().substr(0, 12), printable(meta_text(info, "model"), kMostText),
                      printable(meta_text(info, "mode"), kMostText),
                      printable(meta_text(info, "inputs"), kMostText), size_text(info.stored_bytes),
                      std::to_string(info.hits), seconds_text(info.seconds_saved),
                      age_text(info.created, now)});
    }
    print_table(rows);
    return kExitOk;
  }

 private:
  CacheFlags flags_;
};

REKINDLE_COMMAND(cache, ls, "List the entries, newest first", CacheLs);

}  // namespace
}  // namespace rekindle::cli
