#include <fmt/core.h>

#include <ctime>
#include <optional>

#include "cli/cache_flags.h"
#include "cli/command.h"
#include "cli/table.h"
#include "export_cache/units.h"

namespace rekindle::cli {
namespace {

constexpr std::size_t kMostModelText = 40;

class CachePrune : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("--max-size", max_size_,
                   "Then the least valuable, until the rest takes no more: 2GiB, 500MB")
        ->type_name("SIZE");
    app.add_option("--older-than", older_than_, "Stored longer ago: 30d, 12h, 2w")->type_name("TIME");
    app.add_option("--unused-since", unused_since_, "Neither used nor stored for so long")->type_name("TIME");
    app.add_option("--model", model_, "Only entries of this class of model")->type_name("NAME");
    app.add_option("--keep-last", keep_last_, "Spare the newest so many of each model")->type_name("N");
    other_torch_ = app.add_option("--not-current-torch", torch_,
                                  "Made with another torch than VERSION (default: that of the newest entry)")
                       ->expected(0, 1)
                       ->type_name("VERSION");
    app.add_flag("--dry-run", dry_run_, "Only say what would go");
    flags_.declare(app);
  }

  int run() override {
    auto policy = read_policy();
    if (!policy.ok()) return fail(policy.error(), kExitUsage);
    auto cache = flags_.open(dry_run_ ? CacheMode::kReadOnly : CacheMode::kReadWrite);
    if (!cache.ok()) return fail(cache.error());
    if (other_torch_->count() > 0 && torch_.empty()) {
      const auto entries = (*cache)->list();
      if (!entries.ok()) return fail(entries.error());
      if (!entries->empty()) policy->not_torch = MetaText(entries->front())["torch"];
    }
    const auto report = (*cache)->prune(*policy, dry_run_);
    if (!report.ok()) return fail(report.error());
    flags_.json ? print_report_json((*cache)->dir(), *report) : print_report(*report);
    return kExitOk;
  }

 private:
  Result<PrunePolicy> read_policy() const {
    PrunePolicy policy{
        .model = model_,
        .not_torch = torch_,
    };
    if (keep_last_ && *keep_last_ < 0) return invalid_argument("--keep-last cannot be negative");
    if (keep_last_) policy.keep_last = static_cast<std::size_t>(*keep_last_);
    if (!max_size_.empty()) {
      REKINDLE_ASSIGN_OR_RETURN(policy.max_bytes, parse_size(max_size_));
    }
    if (!older_than_.empty()) {
      REKINDLE_ASSIGN_OR_RETURN(policy.older_than, parse_duration(older_than_));
    }
    if (!unused_since_.empty()) {
      REKINDLE_ASSIGN_OR_RETURN(policy.unused_since, parse_duration(unused_since_));
    }
    if (policy.selects() || other_torch_->count() > 0) return policy;
    return invalid_argument("say what should go, such as --older-than 30d; everything: rekindle cache clear");
  }

  static void print_items(const char* title, const std::vector<PruneItem>& items) {
    if (items.empty()) return;
    const std::int64_t now = std::time(nullptr);
    fmt::print("{}\n", title);
    std::vector<std::vector<std::string>> rows = {{"  ID", "MODEL", "SIZE", "SAVED", "AGE", "WHY"}};
    for (const PruneItem& item : items) {
      rows.push_back({"  " + short_id(item.entry.id),
                      printable(MetaText(item.entry)["model"], kMostModelText),
                      size_text(item.entry.stored_bytes), seconds_text(item.entry.seconds_saved),
                      age_text(item.entry.created, now), item.why});
    }
    print_table(rows);
  }

  static void print_report(const PruneReport& report) {
    print_items(report.dry_run ? "would go" : "gone", report.plan.removed);
    print_items("spared", report.plan.spared);
    fmt::print("{} {} entries, {}; {} {} remain", report.dry_run ? "would remove" : "removed",
               report.plan.removed.size(), size_text(report.bytes_before - report.bytes_after),
               size_text(report.bytes_after), report.dry_run ? "would" : "of entries");
    report.dry_run ? fmt::print("\n") : fmt::print(", {} on disk\n", size_text(report.disk_after));
  }

  static Json items_json(const std::vector<PruneItem>& items) {
    Json list = Json::array();
    for (const PruneItem& item : items) {
      list.push_back(entry_json(item.entry));
      list.back()["why"] = item.why;
    }
    return list;
  }

  static void print_report_json(const std::string& dir, const PruneReport& report) {
    print_json({{"dir", dir},
                {"dry_run", report.dry_run},
                {"removed", items_json(report.plan.removed)},
                {"spared", items_json(report.plan.spared)},
                {"bytes_before", report.bytes_before},
                {"bytes_after", report.bytes_after},
                {"disk_before", report.disk_before},
                {"disk_after", report.disk_after}});
  }

  std::string max_size_, older_than_, unused_since_, model_, torch_;
  std::optional<std::int64_t> keep_last_;
  const CLI::Option* other_torch_ = nullptr;
  bool dry_run_ = false;
  CacheFlags flags_;
};

REKINDLE_COMMAND(cache, prune, "Remove entries by age, use, model, torch version or size", CachePrune);

}  // namespace
}  // namespace rekindle::cli
