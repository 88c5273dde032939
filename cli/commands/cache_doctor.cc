#include <fmt/core.h>

#include <algorithm>

#include "cli/cache_flags.h"
#include "cli/checkup.h"
#include "cli/command.h"
#include "cli/table.h"

namespace rekindle::cli {
namespace {

class CacheDoctor : public Command {
 public:
  void declare(CLI::App& app) override { flags_.declare(app); }

  int run() override {
    const std::string dir = flags_.directory();
    const std::vector<Finding> findings = examine(dir);
    flags_.json ? print_findings_json(dir, findings) : print_findings(findings);
    return std::ranges::count(findings, Verdict::kWrong, &Finding::verdict) == 0 ? kExitOk : kExitProblem;
  }

 private:
  static void print_findings(const std::vector<Finding>& findings) {
    std::vector<std::vector<std::string>> rows;
    for (const Finding& finding : findings) {
      rows.push_back({finding.verdict == Verdict::kFine ? "" : verdict_name(finding.verdict), finding.topic,
                      finding.value});
    }
    print_table(rows);
    for (const Finding& finding : findings) {
      if (!finding.advice.empty()) fmt::print("\n{}: {}\n", finding.topic, finding.advice);
    }
  }

  static void print_findings_json(const std::string& dir, const std::vector<Finding>& findings) {
    Json root;
    root["dir"] = dir;
    root["findings"] = Json::array();
    for (const Finding& finding : findings) {
      root["findings"].push_back({{"topic", finding.topic},
                                  {"value", finding.value},
                                  {"verdict", verdict_name(finding.verdict)},
                                  {"advice", finding.advice}});
    }
    print_json(root);
  }

  CacheFlags flags_;
};

REKINDLE_COMMAND(cache, doctor, "Examine the directory: owner, file system, space, locks, what is wrong",
                 CacheDoctor);

}  // namespace
}  // namespace rekindle::cli
