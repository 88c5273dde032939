#include <fmt/core.h>

#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "cli/cache_flags.h"
#include "cli/command.h"
#include "cli/table.h"
#include "export_cache/misses/differences.h"
#include "export_cache/misses/explain.h"

namespace rekindle::cli {
namespace {

constexpr std::size_t kMostLeafText = 60;
constexpr std::size_t kMostRows = 40;

std::string short_id(const Digest& id) { return id.hex().substr(0, 12); }

Json differences_json(const std::vector<Difference>& differences) {
  Json list = Json::array();
  for (const Difference& found : differences) {
    list.push_back(
        {{"path", found.path}, {"before", found.before}, {"after", found.after}, {"places", found.places}});
  }
  return list;
}

void print_differences(const std::vector<Difference>& differences, std::uint64_t omitted) {
  std::vector<std::vector<std::string>> rows = {{"  PATH", "BEFORE", "AFTER"}};
  for (const Difference& found : differences) {
    if (rows.size() > kMostRows) break;
    const std::string more = found.places > 1 ? fmt::format(" (and {} more)", found.places - 1) : "";
    rows.push_back({"  " + printable(found.path, 2 * kMostLeafText) + more,
                    printable(found.before, kMostLeafText), printable(found.after, kMostLeafText)});
  }
  omitted += differences.size() + 1 - rows.size();
  if (rows.size() > 1) print_table(rows);
  if (omitted > 0) fmt::print("  and {} more\n", omitted);
}

Json miss_json(const Miss& miss) {
  const bool compared = miss.nearest != Digest{};
  return {{"time", miss.time},
          {"model", miss.model},
          {"reason", miss.reason},
          {"prekey", miss.prekey.hex()},
          {"nearest", compared ? Json(miss.nearest.hex()) : Json()},
          {"nearest_created", miss.nearest_created},
          {"equal", miss.equal},
          {"total", miss.total},
          {"differences", differences_json(miss.differences)},
          {"omitted", miss.omitted}};
}

void print_miss(const Miss& miss, std::int64_t now) {
  std::string line = fmt::format("{} ago  {}  {}", age_text(miss.time, now), miss.model, miss.reason);
  if (miss.nearest != Digest{}) {
    line += fmt::format(", nearest {} ({} old then, {} of {} leaves equal)", short_id(miss.nearest),
                        age_text(miss.nearest_created, miss.time), miss.equal, miss.total);
  }
  fmt::print("{}\n", printable(line, line.size()));
  print_differences(miss.differences, miss.omitted);
}

struct Side {
  Digest id;
  LeafTree leaves;
};

class CacheExplain : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("ids", prefixes_, "Ids of entries, or the starts of them")
        ->type_name("ID")
        ->expected(0, 2);
    app.add_option("--last", last_, "Without ids: how many of the last misses to show")
        ->type_name("N")
        ->check(CLI::Range(std::size_t{1}, kMaxMisses));
    flags_.declare(app);
  }

  int run() override {
    auto cache = flags_.open(CacheMode::kReadOnly);
    if (!cache.ok()) return fail(cache.error());
    if (prefixes_.empty()) return print_misses(**cache);
    auto first = side(**cache, prefixes_[0]);
    if (!first.ok()) return fail(first.error());
    auto second = prefixes_.size() == 2 ? side(**cache, prefixes_[1]) : nearest_to(**cache, *first);
    if (!second.ok()) return fail(second.error());
    // With one id the other entry is what was there before, as it is for a miss.
    if (prefixes_.size() == 1) std::swap(*first, *second);
    print_sides((*cache)->dir(), *first, *second);
    return kExitOk;
  }

 private:
  static Result<Side> side(ExportCache& cache, const std::string& prefix) {
    REKINDLE_ASSIGN_OR_RETURN(const Digest id, cache.find(prefix));
    REKINDLE_ASSIGN_OR_RETURN(std::vector<LeafTree> trees, cache.leaves({id}));
    if (!trees.front().empty()) return Side{id, std::move(trees.front())};
    return not_found("entry " + short_id(id) +
                     " has no leaves: it came from another machine, or they were damaged");
  }

  static Result<Side> nearest_to(ExportCache& cache, const Side& one) {
    REKINDLE_ASSIGN_OR_RETURN(std::optional<NearestEntry> found, find_nearest(cache, one.leaves, one.id));
    if (found) return Side{found->id, std::move(found->leaves)};
    return not_found("there is no other entry of " + one.leaves.model + " to compare " + short_id(one.id) +
                     " with");
  }

  void print_sides(const std::string& dir, const Side& before, const Side& after) const {
    const std::vector<Difference> found = differences(before.leaves, after.leaves);
    const Similarity alike = similarity(before.leaves, after.leaves);
    if (flags_.json) {
      print_json({{"dir", dir},
                  {"before", before.id.hex()},
                  {"after", after.id.hex()},
                  {"equal", alike.equal},
                  {"total", alike.total},
                  {"differences", differences_json(found)}});
      return;
    }
    fmt::print("{} -> {}, {} of {} leaves of the key equal\n", short_id(before.id), short_id(after.id),
               alike.equal, alike.total);
    if (found.empty()) fmt::print("  no differences\n");
    print_differences(found, 0);
  }

  int print_misses(const ExportCache& cache) const {
    std::vector<Miss> misses = cache.misses();
    if (misses.size() > last_) misses.resize(last_);
    if (flags_.json) {
      Json root = {{"dir", cache.dir()}, {"misses", Json::array()}};
      for (const Miss& miss : misses) root["misses"].push_back(miss_json(miss));
      print_json(root);
      return kExitOk;
    }
    if (misses.empty()) fmt::print("no miss is remembered in {}\n", cache.dir());
    const std::int64_t now = std::time(nullptr);
    for (const Miss& miss : misses) print_miss(miss, now);
    return kExitOk;
  }

  std::vector<std::string> prefixes_;
  std::size_t last_ = kMaxMisses;
  CacheFlags flags_;
};

REKINDLE_COMMAND(cache, explain, "Say why a call missed, or how two entries differ", CacheExplain);

}  // namespace
}  // namespace rekindle::cli
