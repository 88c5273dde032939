#include "session/plan/subgraphs.h"

#include <algorithm>
#include <map>
#include <utility>

namespace rekindle::session {
namespace {

// What takes more operations to be made again is no place: it is better held.
constexpr std::size_t kLargestSubgraph = 64;

class SubgraphFinding {
 public:
  SubgraphFinding(const Programs& programs, const Step& step)
      : programs_(programs),
        step_(step),
        is_saved_(step.values.size(), false),
        seen_(step.values.size(), kNobody),
        runs_(step.operations.size(), kNobody) {
    for (std::size_t at = step.backward; at < step.operations.size(); ++at) {
      for (const std::uint32_t value : step.operations[at].reads) is_saved_[value] = true;
    }
  }

  std::vector<Subgraph> run() {
    std::vector<Subgraph> all;
    for (std::uint32_t place = 0; place < step_.backward; ++place) {
      Subgraph found;
      for (const std::uint32_t value : step_.operations[place].writes) {
        if (is_saved_[value] && step_.values[value].can_drop && step_.values[value].bytes > 0)
          found.saved.push_back(value);
      }
      if (!found.saved.empty() && trace(place, found)) all.push_back(std::move(found));
    }
    return all;
  }

 private:
  static constexpr std::uint32_t kNobody = -1;

  // False where it would free nothing, or take too much.
  bool trace(std::uint32_t place, Subgraph& found) {
    runs_[place] = place;
    found.operations = {place};
    for (std::size_t next = 0; next < found.operations.size(); ++next) {
      if (found.operations.size() > kLargestSubgraph) return false;
      for (const std::uint32_t read : step_.operations[found.operations[next]].reads_again()) {
        if (std::exchange(seen_[read], place) != place) add_read(read, place, found);
      }
    }
    const std::size_t freed = bytes_of(found.saved), instead = bytes_of(found.held);
    if (freed <= instead) return false;
    found.bytes = freed - instead;
    std::ranges::sort(found.operations);
    for (const std::uint32_t operation : found.operations) {
      if (!found.kind.empty()) found.kind += '+';
      found.kind += programs_.forward.instructions[operation].node->op_type();
    }
    return true;
  }

  // What is read is there anyway, or is held instead, or is made again.
  void add_read(std::uint32_t value, std::uint32_t place, Subgraph& found) {
    const StepValue& read = step_.values[value];
    if (read.made_by < 0 || is_saved_[value] || read.place == StepValue::Place::kUncounted) return;
    if (!read.can_drop) {
      found.held.push_back(value);
      return;
    }
    found.between.push_back(value);
    const auto maker = static_cast<std::uint32_t>(read.made_by);
    if (std::exchange(runs_[maker], place) != place) found.operations.push_back(maker);
  }

  std::size_t bytes_of(const std::vector<std::uint32_t>& values) const {
    std::size_t bytes = 0;
    for (const std::uint32_t value : values) bytes += step_.values[value].bytes;
    return bytes;
  }

  const Programs& programs_;
  const Step& step_;
  std::vector<bool> is_saved_;       // the backward reads it
  std::vector<std::uint32_t> seen_;  // per value: the last place that reads it
  std::vector<std::uint32_t> runs_;  // per operation: the last place that runs it
};

// A kind's row, while places are added to it.
struct KindRow {
  SubgraphKind sum;
  std::unordered_set<std::uint32_t> held, operations;  // count once
};

void add_place(const Subgraph& place, const Step& step, KindRow& row) {
  ++row.sum.count;
  for (const std::uint32_t value : place.saved) row.sum.bytes += step.values[value].bytes;
  for (const std::uint32_t value : place.held) {
    if (row.held.insert(value).second) row.sum.bytes -= step.values[value].bytes;
  }
  for (const std::uint32_t operation : place.operations) {
    if (row.operations.insert(operation).second) row.sum.share += step.operations[operation].seconds;
  }
}

std::string listed(const std::map<std::string, std::size_t>& counts) {
  std::string text;
  for (const auto& [kind, count] : counts)
    text += (text.empty() ? "" : ", ") + kind + " (" + std::to_string(count) + ")";
  return text.empty() ? "none" : text;
}

}  // namespace

std::vector<Subgraph> subgraphs_of(const Programs& programs, const Step& step) {
  return SubgraphFinding(programs, step).run();
}

std::vector<SubgraphKind> kinds_of(const Programs& programs, const Step& step,
                                   const std::unordered_set<std::string>& dropped) {
  double seconds = 0;
  for (const StepOperation& operation : step.operations) seconds += operation.seconds;
  // A plan may hold what is small of it, such as a normalization's statistics.
  const auto is_recomputed = [&](const Subgraph& place) {
    std::size_t all = 0, made_again = 0;
    for (const std::uint32_t value : place.saved) {
      all += step.values[value].bytes;
      if (dropped.contains(programs.slots[value].value->name())) made_again += step.values[value].bytes;
    }
    return made_again > all / 2;
  };
  std::map<std::string, KindRow> rows;
  for (const Subgraph& place : subgraphs_of(programs, step)) {
    KindRow& row = rows[place.kind];
    if (row.sum.count == 0) {
      row.sum.kind = place.kind;
      row.sum.source = programs.forward.instructions[place.operations.back()].node->source();
    }
    add_place(place, step, row);
    if (is_recomputed(place)) ++row.sum.recomputed;
  }
  std::vector<SubgraphKind> kinds;
  for (auto& [kind, row] : rows) {
    row.sum.share /= seconds;
    kinds.push_back(std::move(row.sum));
  }
  std::ranges::stable_sort(kinds, std::ranges::greater{}, &SubgraphKind::bytes);
  return kinds;
}

PlannedValues planned_values(const std::vector<Subgraph>& subgraphs, const MemoryPlan& plan) {
  std::map<std::string, std::size_t> counts, wanted;
  for (const Subgraph& place : subgraphs) ++counts[place.kind];
  PlannedValues planned;
  for (const auto& [kind, recompute] : plan.kinds) {
    wanted[kind] = recompute < 0 ? subgraphs.size() : static_cast<std::size_t>(recompute);
    if (recompute != 0 && !counts.contains(kind)) planned.unmet += (planned.unmet.empty() ? "" : ", ") + kind;
  }
  if (!planned.unmet.empty()) planned.unmet += "; the graph has " + listed(counts);
  for (const Subgraph& place : subgraphs) {
    std::size_t& left = wanted[place.kind];
    if (left == 0) continue;
    --left;
    for (const auto* values : {&place.saved, &place.between})
      planned.values.insert(planned.values.end(), values->begin(), values->end());
  }
  return planned;
}

}  // namespace rekindle::session
