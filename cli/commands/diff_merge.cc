#include <fmt/core.h>

#include "cli/cache_flags.h"
#include "cli/command.h"
#include "cli/new_file.h"
#include "cli/statistics/merge.h"
#include "cli/statistics/records.h"

namespace rekindle::cli {
namespace {

class DiffMerge : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("runs", runs_, "Directories of statistics, or files in them")
        ->type_name("RUN")
        ->required();
    app.add_option("-o,--output", output_, "The new directory")->type_name("DIR")->required();
    app.add_flag("--json", json_, "Print one JSON object");
  }

  int run() override {
    std::vector<Run> ranks;
    for (const std::string& path : runs_) {
      auto found = read_runs(path);
      if (!found.ok()) return fail(found.error());
      std::ranges::move(*found, std::back_inserter(ranks));
    }
    const auto merged = merge(ranks);
    if (!merged.ok()) return fail(merged.error());
    const std::string file = output_ + "/rank_0.jsonl";
    const Status written = write_new_file(file, [&](std::ostream& out) { write(*merged, out); });
    if (!written.ok()) return fail(written.error());
    const std::size_t tensors = merged->tensors.size();
    if (json_) print_json({{"file", file}, {"ranks", ranks.size()}, {"tensors", tensors}});
    if (!json_) fmt::print("{}: {} tensors of {} ranks\n", file, tensors, ranks.size());
    return kExitOk;
  }

 private:
  static void write(const Run& run, std::ostream& out) {
    out << Json({{"kind", "run"},
                 {"format", "rekindle.statistics"},
                 {"version", 1},
                 {"rank", run.rank},
                 {"world", run.world},
                 {"model", run.model}})
               .dump()
        << '\n';
    for (const auto& [step, mode] : run.modes) {
      out << Json({{"kind", "step"}, {"step", step}, {"training", mode == "training"}}).dump() << '\n';
    }
    for (const Tensor& tensor : run.tensors) out << record_of(tensor).dump() << '\n';
    if (run.is_cut) out << Json({{"kind", "limit"}}).dump() << '\n';
  }

  std::vector<std::string> runs_;
  std::string output_;
  bool json_ = false;
};

REKINDLE_COMMAND(diff, merge, "Join the ranks of a run into one", DiffMerge);

}  // namespace
}  // namespace rekindle::cli
