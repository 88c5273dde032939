#include <fmt/core.h>

#include "cli/cache_flags.h"
#include "cli/command.h"

namespace rekindle::cli {
namespace {

class CacheUnpack : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("bundle", bundle_, "A file of rekindle cache pack")->required()->type_name("FILE");
    flags_.declare(app);
  }

  int run() override {
    // Carrying exports to a machine that has none yet is what bundles are
    // for, so the directory may be made here.
    auto cache = ExportCache::open({.dir = flags_.directory()});
    if (!cache.ok()) return fail(cache.error());
    auto report = (*cache)->unpack(bundle_);
    if (!report.ok()) return fail(report.error());
    if (flags_.json) {
      print_json({{"dir", (*cache)->dir()},
                  {"added", report->added},
                  {"known", report->known},
                  {"unsound", report->unsound}});
    } else {
      fmt::print("added {} entries to {}; {} were there already\n", report->added, (*cache)->dir(),
                 report->known);
    }
    if (report->unsound == 0) return kExitOk;
    return fail(corruption(fmt::format(
        "{} entries of {} fail their checks and were left out; pack them again", report->unsound, bundle_)));
  }

 private:
  std::string bundle_;
  CacheFlags flags_;
};

REKINDLE_COMMAND(cache, unpack, "Add the entries of a packed file", CacheUnpack);

}  // namespace
}  // namespace rekindle::cli
