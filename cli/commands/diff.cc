#include <fmt/core.h>

#include <cmath>

#include "cli/cache_flags.h"
#include "cli/choice.h"
#include "cli/command.h"
#include "cli/statistics/first_difference.h"
#include "cli/table.h"

namespace rekindle::cli {
namespace {

// As diff(1) has them; documented in docs/cli.md.
enum DiffCode : int { kSame = 0, kDifferent = 1, kTrouble = 2 };

constexpr std::size_t kMostNamed = 3;

std::string number_text(double value) { return std::isnan(value) ? "-" : fmt::format("{:.9g}", value); }
std::string small_text(double value) { return value == 0 ? "0" : fmt::format("{:.2g}", value); }

Json number_json(double value) { return std::isfinite(value) ? Json(value) : Json(); }

struct RankDivergence {
  const Run* a;
  const Run* b;
  Divergence found;
};

class Diff : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("runs", runs_, "Two directories of statistics, or two files in them")
        ->type_name("A B")
        ->expected(0, 2);
    app.add_option("--tolerance", tolerance_, "Multiplies what rounding explains (default: 1)")
        ->type_name("X")
        ->check(CLI::PositiveNumber);
    add_choice(app, "--phase", phase_, {"parameter", "forward", "backward", "gradient"},
               "Compare tensors of this phase only");
    app.add_flag("--json", json_, "Print one JSON object");
  }

  int run() override {
    if (runs_.size() != 2) {
      return fail(invalid_argument("diff takes two runs: rekindle diff A B; see rekindle diff --help"),
                  kExitUsage);
    }
    auto a = read(runs_[0]);
    if (!a.ok()) return fail(a.error(), kTrouble);
    auto b = read(runs_[1]);
    if (!b.ok()) return fail(b.error(), kTrouble);
    if (a->size() != b->size()) return fail(ranks_differ(*a, *b), kTrouble);
    std::vector<RankDivergence> ranks;
    for (std::size_t i = 0; i < a->size(); ++i) {
      ranks.push_back({&(*a)[i], &(*b)[i], first_difference((*a)[i], (*b)[i], tolerance_)});
      if (ranks.back().found.compared == 0) return fail(nothing_common(ranks.back()), kTrouble);
    }
    json_ ? print_json(report_json(ranks)) : print_report(ranks);
    return earliest(ranks) == nullptr ? kSame : kDifferent;
  }

 private:
  Result<std::vector<Run>> read(const std::string& path) const {
    REKINDLE_ASSIGN_OR_RETURN(std::vector<Run> runs, read_runs(path));
    for (Run& run : runs) {
      std::erase_if(run.tensors, [&](const Tensor& tensor) {
        return !phase_.empty() && phase_ != phase_name(tensor.key.phase);
      });
    }
    return runs;
  }

  Error ranks_differ(const std::vector<Run>& a, const std::vector<Run>& b) const {
    return invalid_argument(fmt::format(
        "{} has {} ranks and {} has {}; merge one of them (rekindle diff merge), or name a file of each",
        runs_[0], a.size(), runs_[1], b.size()));
  }

  static Error nothing_common(const RankDivergence& rank) {
    return invalid_argument(
        fmt::format("{} and {} have no tensor of one name in one step; are they runs of one model?",
                    rank.a->file, rank.b->file));
  }

  static const RankDivergence* earliest(const std::vector<RankDivergence>& ranks) {
    const RankDivergence* first = nullptr;
    for (const RankDivergence& rank : ranks) {
      if (!rank.found.first) continue;
      if (first == nullptr || place(rank) < place(*first)) first = &rank;
    }
    return first;
  }

  static std::pair<std::int64_t, std::size_t> place(const RankDivergence& rank) {
    return {rank.found.first->a->key.step, rank.found.compared};
  }

  static std::vector<std::string> notes(const std::vector<RankDivergence>& ranks) {
    std::vector<std::string> found;
    for (const RankDivergence& rank : ranks) {
      const std::string of = ranks.size() > 1 ? fmt::format("rank {}: ", rank.a->rank) : "";
      for (const std::string& note : rank.found.notes) found.push_back(of + note);
      for (const auto& [run, tensors] : {std::pair("A", &rank.found.only_a), {"B", &rank.found.only_b}}) {
        if (tensors->empty()) continue;
        std::string note = fmt::format("{}{} tensors are in {} only: ", of, tensors->size(), run);
        for (std::size_t i = 0; i < std::min(kMostNamed, tensors->size()); ++i) {
          note += (i > 0 ? "; " : "") + title(*(*tensors)[i]);
        }
        found.push_back(note + (tensors->size() > kMostNamed ? "; ..." : ""));
      }
    }
    return found;
  }

  static void print_report(const std::vector<RankDivergence>& ranks) {
    const RankDivergence* first = earliest(ranks);
    std::size_t compared = 0;
    double worst = 0;
    for (const RankDivergence& rank : ranks) {
      compared += rank.found.compared;
      worst = std::max(worst, rank.found.worst);
    }
    if (first == nullptr) {
      fmt::print("no difference that rounding does not explain: {} tensors, at most {} of what it allows\n",
                 compared, small_text(worst));
    } else {
      print_first(*first, ranks.size() > 1);
    }
    for (const std::string& note : notes(ranks)) fmt::print("note: {}\n", printable(note, note.size()));
  }

  static void print_first(const RankDivergence& rank, bool with_rank) {
    const Divergence& found = rank.found;
    const Pair& first = *found.first;
    const std::string of = with_rank ? fmt::format("rank {}, ", rank.a->rank) : "";
    fmt::print("first difference: {}{}\n", of, printable(title(*first.a), 200));
    fmt::print("  {} {} in A, {} {} in B; {} tensors before it agree\n", first.a->dtype,
               Json(first.a->shape).dump(), first.b->dtype, Json(first.b->shape).dump(), found.compared - 1);
    if (!found.is_shape) print_statistics(first);
    print_feeding(found.fed_by);
  }

  static void print_statistics(const Pair& pair) {
    std::vector<std::vector<std::string>> rows = {{"  STATISTIC", "A", "B", "DIFFERENCE", "ROUNDING", ""}};
    for (const Compared& one : pair.comparison.statistics) {
      rows.push_back({std::string("  ") + one.statistic, number_text(one.a), number_text(one.b),
                      small_text(one.difference), small_text(one.allowed), one.exceeds() ? "differs" : ""});
    }
    print_table(rows);
  }

  static void print_feeding(const std::vector<Pair>& pairs) {
    fmt::print("{}\n", pairs.empty() ? "nothing before it feeds it" : "fed by, which agree:");
    if (pairs.empty()) return;
    std::vector<std::vector<std::string>> rows = {{"  TENSOR", "NORM IN A", "NORM IN B", "OF ROUNDING"}};
    for (const Pair& pair : pairs) {
      rows.push_back({"  " + printable(title(*pair.a), 100), number_text(pair.a->values.norm),
                      number_text(pair.b->values.norm), small_text(pair.comparison.worst())});
    }
    print_table(rows);
  }

  static Json tensor_json(const Pair& pair) {
    const Key& key = pair.a->key;
    return {{"step", key.step},
            {"phase", phase_name(key.phase)},
            {"name", key.name},
            {"output", key.output < 0 ? Json() : Json(key.output)},
            {"call", key.call},
            {"module", pair.a->module.empty() ? Json() : Json(pair.a->module)},
            {"dtype", {pair.a->dtype, pair.b->dtype}},
            {"shape", {pair.a->shape, pair.b->shape}}};
  }

  static Json first_json(const RankDivergence& rank) {
    const Pair& first = *rank.found.first;
    Json root = {{"rank", rank.a->rank}};
    root.update(tensor_json(first));
    root["statistics"] = Json::array();
    for (const Compared& one : first.comparison.statistics) {
      root["statistics"].push_back({{"name", one.statistic},
                                    {"a", number_json(one.a)},
                                    {"b", number_json(one.b)},
                                    {"difference", number_json(one.difference)},
                                    {"allowed", number_json(one.allowed)},
                                    {"differs", one.exceeds()}});
    }
    root["fed_by"] = Json::array();
    for (const Pair& pair : rank.found.fed_by) {
      Json fed = tensor_json(pair);
      fed["norm"] = {number_json(pair.a->values.norm), number_json(pair.b->values.norm)};
      fed["of_rounding"] = number_json(pair.comparison.worst());
      root["fed_by"].push_back(fed);
    }
    return root;
  }

  Json report_json(const std::vector<RankDivergence>& ranks) const {
    const RankDivergence* first = earliest(ranks);
    std::size_t compared = 0, only_a = 0, only_b = 0;
    double worst = 0;
    for (const RankDivergence& rank : ranks) {
      compared += rank.found.compared;
      only_a += rank.found.only_a.size();
      only_b += rank.found.only_b.size();
      worst = std::max(worst, rank.found.worst);
    }
    return {{"a", runs_[0]},           {"b", runs_[1]},
            {"tolerance", tolerance_}, {"different", first != nullptr},
            {"compared", compared},    {"worst", worst},
            {"only_a", only_a},        {"only_b", only_b},
            {"notes", notes(ranks)},   {"first", first == nullptr ? Json() : first_json(*first)}};
  }

  std::vector<std::string> runs_;
  std::string phase_;
  double tolerance_ = 1;
  bool json_ = false;
};

REKINDLE_NOUN_COMMAND(diff, "The first tensor in which two training runs differ", Diff);

}  // namespace
}  // namespace rekindle::cli
