#include "session/plan/recompute_search.h"

#include <algorithm>

namespace rekindle::session {
namespace {

using Instance = StepSchedule::Instance;
using Place = StepValue::Place;

// Of what can be dropped at a moment, so much is dropped before the next look: a part of many alike.
constexpr std::size_t kShareAtOnce = 24;
// A step runs at most so many times as many instructions as it has.
constexpr std::size_t kMostEvents = 3;
// An operation costs this much beside its work: what is tiny is not worth dropping.
constexpr double kOverhead = 2e-6;
// What making a value again reads is held for it where it is smaller by this factor.
constexpr std::int64_t kHeldShare = 32;
// A value that takes more operations to be made again is not looked at.
constexpr std::size_t kMostOperations = 512;

}  // namespace

RecomputeSearch::RecomputeSearch(const Step& step)
    : step_(step), cuts_(step.values.size()), seen_(step.values.size(), 0) {
  rebuild();
}

void RecomputeSearch::rebuild() {
  schedule_ = schedule_of(step_, cuts_);
  instances_of_.assign(step_.values.size(), {});
  for (std::uint32_t i = 0; i < schedule_.instances.size(); ++i)
    instances_of_[schedule_.instances[i].value].push_back(i);
  again_at_.assign(step_.operations.size(), -1);
  for (std::size_t at = 0; at < schedule_.events.size(); ++at) {
    if (schedule_.events[at].is_again())
      again_at_[schedule_.events[at].operation] = static_cast<std::int32_t>(at);
  }
}

void RecomputeSearch::drop(const std::vector<std::uint32_t>& values) {
  for (const std::uint32_t value : values) {
    if (step_.values[value].can_drop && step_.backward > 0) cuts_[value] = {step_.backward - 1};
  }
  rebuild();
}

bool RecomputeSearch::advance() {
  if (schedule_.events.size() > kMostEvents * step_.operations.size()) return false;
  std::vector<Candidate> found;
  add_candidates(schedule_.fullest_arena, Place::kArena, found);
  add_candidates(schedule_.fullest_outside, Place::kOutside, found);
  if (found.empty()) return false;
  const std::size_t count = found.size() / kShareAtOnce + 1;
  std::ranges::stable_sort(found, std::ranges::greater{}, &Candidate::score);
  for (std::size_t i = 0; i < count; ++i) {
    for (const std::uint32_t value : found[i].values) {
      auto& cuts = cuts_[value];
      const auto place = std::ranges::lower_bound(cuts, found[i].cut);
      if (place == cuts.end() || *place != found[i].cut) cuts.insert(place, found[i].cut);
    }
  }
  rebuild();
  return true;
}

void RecomputeSearch::add_candidates(std::int32_t event, Place place, std::vector<Candidate>& found) {
  for (const Instance& instance : schedule_.instances) {
    const StepValue& value = step_.values[instance.value];
    if (!value.can_drop || value.place != place || value.bytes == 0) continue;
    if (instance.first >= event || instance.last <= event) continue;
    Candidate candidate;
    if (examine(instance, event, candidate)) found.push_back(std::move(candidate));
  }
}

// Whether, and with what, the instance's value can be dropped over the event.
bool RecomputeSearch::examine(const Instance& instance, std::int32_t event, Candidate& candidate) {
  const auto next = std::ranges::upper_bound(instance.read_at, static_cast<std::uint32_t>(event));
  if (next == instance.read_at.end() || *next < schedule_.backward) return false;  // or only kept
  if (next != instance.read_at.begin() && *(next - 1) == static_cast<std::uint32_t>(event)) return false;
  const std::uint32_t made_for = schedule_.events[static_cast<std::size_t>(instance.first)].block;
  const std::uint32_t from =
      next == instance.read_at.begin() ? made_for : schedule_.events[*(next - 1)].block;
  Again again{event, schedule_.events[*next].block, 0, kOverhead, {}};
  std::uint32_t cut = schedule_.events[static_cast<std::size_t>(event)].block;
  if (cut == again.block) {
    if (from == cut) return false;  // it would be made again for what has just read it
    --cut;
  }
  again.freed = static_cast<std::int64_t>(step_.values[instance.value].bytes);
  ++candidate_;
  if (!add_again(instance.value, again) || again.freed <= 0) return false;
  candidate = {static_cast<double>(again.freed) / again.seconds, cut, std::move(again.values)};
  return true;
}

// Adds the operations that make a value again. False where they are too many.
bool RecomputeSearch::add_again(std::uint32_t value, Again& again) {
  std::vector<std::uint32_t> open = {value};
  seen_[value] = candidate_;
  again.values.push_back(value);
  for (std::size_t next = 0; next < open.size(); ++next) {
    if (open.size() > kMostOperations) return false;
    const auto maker = static_cast<std::uint32_t>(step_.values[open[next]].made_by);
    // What runs again later anyway only does so sooner.
    if (again_at_[maker] < again.event) again.seconds += step_.operations[maker].seconds + kOverhead;
    for (const std::uint32_t read : step_.operations[maker].reads_again()) {
      if (seen_[read] != candidate_) add_read(read, again, open);
      seen_[read] = candidate_;
    }
  }
  return true;
}

// What is read has to be there: it is, or is held for longer, or is made again itself.
void RecomputeSearch::add_read(std::uint32_t value, Again& again, std::vector<std::uint32_t>& open) {
  const StepValue& read = step_.values[value];
  if (!read.can_drop) {
    if (read.place != Place::kUncounted && held_at(value, again.event) == nullptr)
      again.freed -= static_cast<std::int64_t>(read.bytes);
    return;
  }
  if (const Instance* held = held_at(value, again.event)) {
    if (!is_held(cuts_, value, last_block(*held), again.block)) open.push_back(value);
    return;
  }
  if (static_cast<std::int64_t>(read.bytes) * kHeldShare <= again.freed) {
    again.freed -= static_cast<std::int64_t>(read.bytes);
    return;
  }
  open.push_back(value);
  again.values.push_back(value);
}

const Instance* RecomputeSearch::held_at(std::uint32_t value, std::int32_t event) const {
  for (const std::uint32_t i : instances_of_[value]) {
    const Instance& instance = schedule_.instances[i];
    if (instance.first <= event && event <= instance.last) return &instance;
  }
  return nullptr;
}

std::uint32_t RecomputeSearch::last_block(const Instance& instance) const {
  return schedule_.events[static_cast<std::size_t>(instance.last)].block;
}

}  // namespace rekindle::session
