#include <fmt/core.h>

#include <charconv>

#include "cli/cache_flags.h"
#include "cli/command.h"
#include "cli/table.h"
#include "src/graph/onnx/import.h"
#include "src/pipeline/pipeline.h"

namespace rekindle::cli {
namespace {

enum VerifyExit : int { kClean = 0, kRepaired = 1, kCorruptionLeft = 2, kNotChecked = 3 };

// What a checksum cannot know: that the graphs are graphs, and the contract is one.
Status inspect_entry(const Digest& id, const Entry& entry) {
  for (const auto& [name, bytes] : entry.sections) {
    if (name == "exported") REKINDLE_RETURN_IF_ERROR(graph::import_onnx(bytes));
    if (name == "joint") REKINDLE_RETURN_IF_ERROR(pipeline::parse_joint_graph(bytes));
    if (name == "contract" && !Json::parse(bytes, nullptr, /*allow_exceptions=*/false).is_object()) {
      return corruption("entry " + id.hex() + ": its contract is not a JSON object");
    }
  }
  return {};
}

class CacheVerify : public Command {
 public:
  void declare(CLI::App& app) override {
    CLI::Option* quick = app.add_flag("--quick", quick_, "Only the index, not the bytes of the entries");
    CLI::Option* deep = app.add_flag("--deep", deep_, "Also parse and check the graphs");
    quick->excludes(deep);
    app.add_option("--sample", sample_, "Read the bytes of so many of the entries, at least one: 10%")
        ->type_name("P%")
        ->excludes(quick);
    app.add_flag("--repair", repair_, "Drop what is unsound, write again what can be derived from the rest");
    flags_.declare(app);
  }

  int run() override {
    const auto options = read_options();
    if (!options.ok()) return fail(options.error(), kExitUsage);
    auto cache = flags_.open(repair_ ? CacheMode::kReadWrite : CacheMode::kReadOnly);
    if (!cache.ok()) return fail(cache.error(), kNotChecked);
    const auto report = (*cache)->verify(*options);
    if (!report.ok()) return fail(report.error(), kNotChecked);
    flags_.json ? print_report_json((*cache)->dir(), *report) : print_report(*report);
    return report->clean() ? kClean : report->left() == 0 ? kRepaired : kCorruptionLeft;
  }

 private:
  Result<VerifyOptions> read_options() const {
    VerifyOptions options{.repair = repair_};
    if (quick_) options.depth = VerifyOptions::Depth::kQuick;
    if (deep_) {
      options.depth = VerifyOptions::Depth::kDeep;
      options.inspect = inspect_entry;
    }
    if (sample_.empty()) return options;
    const char* end = sample_.data() + sample_.size() - (sample_.ends_with('%') ? 1 : 0);
    double percent = 0;
    const auto [stop, error] = std::from_chars(sample_.data(), end, percent);
    if (error != std::errc() || stop != end || !(percent > 0 && percent <= 100)) {
      return invalid_argument("--sample '" + sample_ + "' is not a share above 0% and up to 100%");
    }
    options.sample = percent / 100;
    return options;
  }

  static void print_report(const VerifyReport& report) {
    for (const VerifyProblem& problem : report.problems) {
      fmt::print("{}: {}{}\n", verify_problem_name(problem.kind), printable(problem.what, 300),
                 problem.repaired ? " (repaired)" : "");
    }
    fmt::print("{} entries listed, {} read, {}; {} problems, {} left\n", report.entries, report.entries_read,
               size_text(report.bytes_read), report.problems.size(), report.left());
  }

  static void print_report_json(const std::string& dir, const VerifyReport& report) {
    Json root = {{"dir", dir},
                 {"entries", report.entries},
                 {"entries_read", report.entries_read},
                 {"bytes_read", report.bytes_read},
                 {"left", report.left()},
                 {"problems", Json::array()}};
    for (const VerifyProblem& problem : report.problems) {
      root["problems"].push_back({{"kind", verify_problem_name(problem.kind)},
                                  {"id", problem.id.hex()},
                                  {"what", problem.what},
                                  {"repaired", problem.repaired}});
    }
    print_json(root);
  }

  bool quick_ = false, deep_ = false, repair_ = false;
  std::string sample_;
  CacheFlags flags_;
};

REKINDLE_COMMAND(cache, verify, "Check the cache, and repair it on request", CacheVerify);

}  // namespace
}  // namespace rekindle::cli
