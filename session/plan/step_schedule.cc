#include "session/plan/step_schedule.h"

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

namespace rekindle::session {
namespace {

using Event = StepSchedule::Event;
using Instance = StepSchedule::Instance;

// Longer chains of operations are not told apart.
constexpr std::size_t kMostEffort = 64;

class Builder {
 public:
  Builder(const Step& step, const StepCuts& cuts)
      : step_(step),
        cuts_(cuts),
        current_(step.values.size()),
        used_(step.values.size(), 0),
        asked_of_(step.values.size(), 0) {
    made_.instances.resize(step.values.size());
    made_.read_again.resize(step.values.size());
    for (std::uint32_t value = 0; value < step.values.size(); ++value) {
      made_.instances[value].value = value;
      current_[value] = value;
    }
  }

  StepSchedule run() {
    for (std::uint32_t block = 0; block < step_.operations.size(); ++block) {
      if (block == step_.backward) made_.backward = static_cast<std::uint32_t>(made_.events.size());
      if (block >= step_.backward) provide_reads(block, block);
      add_event(block, block);
    }
    if (step_.backward == step_.operations.size())
      made_.backward = static_cast<std::uint32_t>(made_.events.size());
    hold_kept();
    find_fullest();
    return std::move(made_);
  }

 private:
  void provide_reads(std::uint32_t operation, std::uint32_t block) {
    const StepOperation& of = step_.operations[operation];
    std::vector<std::uint32_t> missing;
    for (const std::uint32_t value : operation == block ? of.reads : of.reads_again()) {
      if (is_there(value, block)) {
        used_[value] = block;
      } else {
        missing.push_back(value);
      }
    }
    // What takes the most comes first: the others need not be held meanwhile.
    if (missing.size() > 1)
      std::ranges::stable_sort(missing, std::ranges::greater{},
                               [&](auto value) { return effort(value, block); });
    for (const std::uint32_t value : missing) {
      const auto maker = static_cast<std::uint32_t>(step_.values[value].made_by);
      if (!is_there(value, block)) provide_reads(maker, block);
      if (!is_there(value, block)) add_event(maker, block);  // not made meanwhile, with what it reads
      used_[value] = block;
    }
  }

  // How many operations have to run again for a value, up to a limit.
  std::size_t effort(std::uint32_t value, std::uint32_t block) {
    ++asked_;
    std::vector<std::uint32_t> open = {value};
    for (std::size_t next = 0; next < open.size() && open.size() < kMostEffort; ++next) {
      const auto maker = static_cast<std::size_t>(step_.values[open[next]].made_by);
      for (const std::uint32_t read : step_.operations[maker].reads_again()) {
        if (std::exchange(asked_of_[read], asked_) != asked_ && !is_there(read, block)) open.push_back(read);
      }
    }
    return open.size();
  }

  bool is_there(std::uint32_t value, std::uint32_t block) const {
    return is_held(cuts_, value, used_[value], block);
  }

  void add_event(std::uint32_t operation, std::uint32_t block) {
    const auto at = static_cast<std::int32_t>(made_.events.size());
    const StepOperation& of = step_.operations[operation];
    Event event{operation, block, {}, {}};
    for (const std::uint32_t value : event.is_again() ? of.reads_again() : of.reads) {
      Instance& read = made_.instances[current_[value]];
      if (current_[value] != value) made_.read_again[value] = true;
      read.read_at.push_back(static_cast<std::uint32_t>(at));
      read.last = at;
      used_[value] = block;
      event.reads.push_back(current_[value]);
    }
    for (const std::uint32_t value : event.is_again() ? of.writes_again() : of.writes)
      event.writes.push_back(write(value, at, event));
    if (event.is_again()) made_.seconds_again += of.seconds;
    made_.events.push_back(std::move(event));
  }

  // What an operation makes again beside the value it runs for takes no one's place that is still held.
  std::uint32_t write(std::uint32_t value, std::int32_t at, const Event& event) {
    std::uint32_t instance = value;
    if (event.is_again()) {
      instance = static_cast<std::uint32_t>(made_.instances.size());
      made_.instances.push_back({value, 0, 0, {}});
    }
    made_.instances[instance].first = made_.instances[instance].last = at;
    if (!event.is_again() || !is_there(value, event.block)) {
      current_[value] = instance;
      used_[value] = event.block;
    }
    return instance;
  }

  // A dropped value is there for no other backward either.
  void hold_kept() {
    for (std::uint32_t value = 0; value < step_.values.size(); ++value) {
      Instance& first = made_.instances[value];
      if (step_.values[value].is_kept && !made_.is_dropped(value))
        first.last = std::max(first.last, static_cast<std::int32_t>(made_.backward));
    }
  }

  void find_fullest() {
    std::vector<std::int64_t> arena(made_.events.size() + 1), outside(made_.events.size() + 1);
    for (const Instance& instance : made_.instances) {
      const StepValue& value = step_.values[instance.value];
      if (value.place == StepValue::Place::kUncounted || instance.last < instance.first) continue;
      auto& changes = value.place == StepValue::Place::kArena ? arena : outside;
      const auto end = std::min(static_cast<std::size_t>(instance.last) + 1, made_.events.size());
      changes[static_cast<std::size_t>(instance.first)] += static_cast<std::int64_t>(value.bytes);
      changes[end] -= static_cast<std::int64_t>(value.bytes);
    }
    take_over(arena);
    std::tie(made_.arena_bytes, made_.fullest_arena) = largest(arena);
    std::tie(made_.outside_bytes, made_.fullest_outside) = largest(outside);
  }

  // What dies where its memory is taken over counts once.
  void take_over(std::vector<std::int64_t>& arena) const {
    for (std::size_t at = 0; at < made_.events.size(); ++at) {
      const Event& event = made_.events[at];
      const StepOperation& of = step_.operations[event.operation];
      for (const std::uint32_t value : of.may_take) {
        const auto place = static_cast<std::size_t>(std::ranges::find(of.reads, value) - of.reads.begin());
        if (made_.instances[event.reads[place]].last != static_cast<std::int32_t>(at)) continue;
        const auto bytes = static_cast<std::int64_t>(step_.values[value].bytes);
        arena[at] -= bytes;
        arena[at + 1] += bytes;
        break;
      }
    }
  }

  static std::pair<std::size_t, std::int32_t> largest(const std::vector<std::int64_t>& changes) {
    std::int64_t live = 0, most = 0;
    std::int32_t when = 0;
    for (std::size_t at = 0; at + 1 < changes.size(); ++at) {
      live += changes[at];
      if (live > most) {
        most = live;
        when = static_cast<std::int32_t>(at);
      }
    }
    return {static_cast<std::size_t>(most), when};
  }

  const Step& step_;
  const StepCuts& cuts_;
  StepSchedule made_;
  std::vector<std::uint32_t> current_;   // per value: its newest instance
  std::vector<std::uint32_t> used_;      // per value: the last block that has made or read that
  std::vector<std::uint32_t> asked_of_;  // per value: the last question of effort() that has met it
  std::uint32_t asked_ = 0;
};

}  // namespace

std::vector<std::uint32_t> StepOperation::reads_again() const {
  std::vector<std::uint32_t> all = reads;
  if (replays) all.insert(all.end(), writes.begin() + 1, writes.end());
  return all;
}

std::vector<std::uint32_t> StepOperation::writes_again() const {
  return replays ? std::vector(writes.begin(), writes.begin() + 1) : writes;
}

bool StepSchedule::is_dropped(std::uint32_t value) const {
  const auto& read_at = instances[value].read_at;
  return read_again[value] && (read_at.empty() || read_at.back() < backward);
}

bool is_held(const StepCuts& cuts, std::uint32_t value, std::uint32_t from, std::uint32_t to) {
  const auto& of_value = cuts[value];
  const auto next = std::ranges::lower_bound(of_value, from);
  return next == of_value.end() || *next >= to;
}

StepSchedule schedule_of(const Step& step, const StepCuts& cuts) { return Builder(step, cuts).run(); }

}  // namespace rekindle::session
