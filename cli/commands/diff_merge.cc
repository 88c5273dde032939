#include <fmt/core.h>

#include <filesystem>
#include <fstream>

#include "cli/cache_flags.h"
#include "cli/command.h"
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
    if (const Status written = write(*merged, file); !written.ok()) return fail(written.error());
    const std::size_t tensors = merged->tensors.size();
    if (json_) print_json({{"file", file}, {"ranks", ranks.size()}, {"tensors", tensors}});
    if (!json_) fmt::print("{}: {} tensors of {} ranks\n", file, tensors, ranks.size());
    return kExitOk;
  }

 private:
  static Status write(const Run& run, const std::string& file) {
    namespace fs = std::filesystem;
    std::error_code error;
    fs::create_directories(fs::path(file).parent_path(), error);
    if (fs::exists(file, error)) return invalid_argument(file + " is there already; name another directory");
    std::ofstream out(file);
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
    out.close();
    return out ? Status()
               : io_error(file + " cannot be written; is the directory writable, and the disk not full?");
  }

  std::vector<std::string> runs_;
  std::string output_;
  bool json_ = false;
};

REKINDLE_COMMAND(diff, merge, "Join the ranks of a run into one", DiffMerge);

}  // namespace
}  // namespace rekindle::cli
