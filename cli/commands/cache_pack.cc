#include <fmt/core.h>

#include <filesystem>

#include "cli/cache_flags.h"
#include "cli/command.h"
#include "cli/table.h"

namespace rekindle::cli {
namespace {

class CachePack : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("id", prefixes_, "Ids of entries, or the starts of them (default: all)")->type_name("ID");
    app.add_option("-o,--output", output_, "The bundle to write")->required()->type_name("FILE");
    flags_.declare(app);
  }

  int run() override {
    auto cache = flags_.open(CacheMode::kReadOnly);
    if (!cache.ok()) return fail(cache.error());
    auto ids = find_entries(**cache, prefixes_);
    if (!ids.ok()) return fail(ids.error());
    auto packed = (*cache)->pack(*std::move(ids), output_);
    if (!packed.ok()) return fail(packed.error());
    std::error_code gone;
    const std::uintmax_t bytes = std::filesystem::file_size(output_, gone);
    if (gone) return fail(io_error("cannot look at " + output_ + ": " + gone.message()));
    if (flags_.json) {
      print_json({{"dir", (*cache)->dir()}, {"output", output_}, {"entries", *packed}, {"bytes", bytes}});
    } else {
      fmt::print("packed {} entries into {}, {}\n", *packed, output_, size_text(bytes));
    }
    return kExitOk;
  }

 private:
  std::vector<std::string> prefixes_;
  std::string output_;
  CacheFlags flags_;
};

REKINDLE_COMMAND(cache, pack, "Write entries to one file, to be carried to another cache", CachePack);

}  // namespace
}  // namespace rekindle::cli
