#include <fmt/core.h>

#include <cstdio>
#include <iostream>

#include "cli/cache_flags.h"
#include "cli/command.h"
#include "cli/table.h"

namespace rekindle::cli {
namespace {

class CacheClear : public Command {
 public:
  void declare(CLI::App& app) override {
    flags_.declare(app);
    app.add_flag("--yes", yes_, "Do not ask");
  }

  int run() override {
    auto cache = flags_.open(CacheMode::kReadWrite);
    if (!cache.ok()) return fail(cache.error());
    auto stats = (*cache)->stats();
    if (!stats.ok()) return fail(stats.error());
    const std::string what = fmt::format("{} entries, {} on disk, from {}", stats->entries,
                                         size_text(stats->disk_bytes), (*cache)->dir());
    if (!yes_ && !confirmed(what))
      return fail(invalid_argument("nothing was removed; --yes removes without asking"));
    if (const Status cleared = (*cache)->clear(); !cleared.ok()) return fail(cleared.error());
    if (flags_.json) {
      print_json({{"dir", (*cache)->dir()}, {"removed_entries", stats->entries}});
    } else {
      fmt::print("removed {}\n", what);
    }
    return kExitOk;
  }

 private:
  static bool confirmed(const std::string& what) {
    fmt::print(stderr, "Remove {}? [y/N] ", what);
    std::string answer;
    return std::getline(std::cin, answer) && (answer == "y" || answer == "Y" || answer == "yes");
  }

  CacheFlags flags_;
  bool yes_ = false;
};

REKINDLE_COMMAND(cache, clear, "Remove all entries and counters", CacheClear);

}  // namespace
}  // namespace rekindle::cli
