// The search for what to compute again, on steps of random graphs: against every set of values that could be
// dropped, and against what a schedule has to keep.
#include "session/plan/recompute_search.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <random>
#include <set>

namespace {

using namespace rekindle::session;

constexpr std::uint32_t kInput = 0;

std::uint32_t add_value(Step& step, std::size_t bytes, bool can_drop) {
  const auto made_by = static_cast<std::int32_t>(step.operations.size());
  step.values.push_back({bytes, StepValue::Place::kArena, made_by, can_drop, false});
  return static_cast<std::uint32_t>(step.values.size() - 1);
}

void run(Step& step, std::vector<std::uint32_t> reads, std::uint32_t writes, double seconds) {
  std::ranges::sort(reads);
  reads.erase(std::unique(reads.begin(), reads.end()), reads.end());
  step.operations.push_back({std::move(reads), {writes}, {}, seconds});
}

// A forward of `count` operations, each on one or two values before it, and a backward that reads some of
// them, last first.
Step random_step(std::mt19937& random, std::uint32_t count) {
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  Step step;
  step.values.push_back({0, StepValue::Place::kUncounted, -1, false, false});
  std::vector<std::uint32_t> made = {kInput};
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t value = add_value(step, 64 * (1 + below(8)), below(8) != 0);
    const std::uint32_t near = made[made.size() - 1 - std::min<std::size_t>(below(2), made.size() - 1)];
    run(step, {near, made[below(static_cast<std::uint32_t>(made.size()))]}, value, 1e-4 * (1 + below(20)));
    made.push_back(value);
  }
  step.backward = static_cast<std::uint32_t>(step.operations.size());
  std::uint32_t gradient = made.back();
  for (std::size_t i = made.size(); i-- > 1;) {
    const std::uint32_t next = add_value(step, 64 * (1 + below(4)), false);
    run(step, below(4) == 0 ? std::vector{gradient} : std::vector{gradient, made[i]}, next, 1e-4);
    gradient = next;
  }
  return step;
}

// What makes a schedule one: everything that is read was made before, from what it was made of in the step.
void check(const Step& step, const StepSchedule& schedule) {
  std::set<std::uint32_t> there = {kInput};
  std::vector<bool> ran(step.operations.size(), false);
  for (const auto& event : schedule.events) {
    const StepOperation& of = step.operations[event.operation];
    REQUIRE(event.reads.size() == of.reads.size());
    for (std::size_t i = 0; i < of.reads.size(); ++i) {
      REQUIRE(schedule.instances[event.reads[i]].value == of.reads[i]);
      REQUIRE(there.contains(event.reads[i]));
    }
    REQUIRE(event.writes.size() == of.writes.size());
    for (const std::uint32_t written : event.writes) REQUIRE(there.insert(written).second);
    if (!event.is_again()) ran[event.operation] = true;
    if (event.is_again()) REQUIRE(event.operation < step.backward);
    if (event.is_again()) REQUIRE(event.block >= step.backward);
  }
  REQUIRE(std::ranges::all_of(ran, [](bool each) { return each; }));
}

struct Choice {
  std::size_t bytes;
  double seconds;
};

std::vector<Choice> every_set(const Step& step) {
  std::vector<std::uint32_t> values;
  for (std::uint32_t value = 0; value < step.values.size(); ++value) {
    if (step.values[value].can_drop) values.push_back(value);
  }
  std::vector<Choice> choices;
  for (std::uint32_t set = 0; set < 1U << values.size(); ++set) {
    StepCuts cuts(step.values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      if ((set >> i & 1U) != 0) cuts[values[i]].push_back(step.backward - 1);
    }
    const StepSchedule schedule = schedule_of(step, cuts);
    choices.push_back({schedule.bytes(), schedule.seconds_again});
  }
  return choices;
}

double cheapest(const std::vector<Choice>& choices, std::size_t budget) {
  double seconds = std::numeric_limits<double>::infinity();
  for (const Choice& choice : choices) {
    if (choice.bytes <= budget) seconds = std::min(seconds, choice.seconds);
  }
  return seconds;
}

double total_seconds(const Step& step) {
  double seconds = 0;
  for (const StepOperation& operation : step.operations) seconds += operation.seconds;
  return seconds;
}

}  // namespace

TEST_CASE("what is dropped runs again right before it is read", "[budget]") {
  Step step;
  step.values.push_back({0, StepValue::Place::kUncounted, -1, false, false});
  const std::uint32_t a = add_value(step, 256, true);
  run(step, {kInput}, a, 1);
  const std::uint32_t b = add_value(step, 128, true);
  run(step, {a}, b, 1);
  step.backward = 2;
  const std::uint32_t db = add_value(step, 64, false);
  run(step, {b}, db, 1);
  run(step, {a, db}, add_value(step, 64, false), 1);

  RecomputeSearch search(step);
  CHECK(search.schedule().bytes() == 448);
  search.drop({a});
  const StepSchedule& schedule = search.schedule();
  REQUIRE(schedule.events.size() == 5);
  CHECK(schedule.events[3].operation == 0);
  CHECK(schedule.events[3].block == 3);
  CHECK(schedule.is_dropped(a));
  CHECK_FALSE(schedule.is_dropped(b));
  CHECK(schedule.seconds_again == 1);
  CHECK(schedule.bytes() == 384);
  check(step, schedule);
}

TEST_CASE("a schedule of any state of the search computes the step", "[budget]") {
  std::mt19937 random(7);
  for (int each = 0; each < 50; ++each) {
    const Step step = random_step(random, 30);
    RecomputeSearch search(step);
    check(step, search.schedule());
    CHECK(search.schedule().seconds_again == 0);
    std::size_t states = 0;
    while (search.advance() && ++states < 10'000) check(step, search.schedule());
    CHECK(states > 0);
    CHECK(states < 10'000);
  }
}

TEST_CASE("the search is close to the best of all sets of values", "[budget]") {
  std::mt19937 random(11);
  std::vector<double> excess, smallest;
  for (int each = 0; each < 60; ++each) {
    const Step step = random_step(random, 11);
    const std::vector<Choice> choices = every_set(step);
    RecomputeSearch search(step);
    std::vector<Choice> found = {{search.schedule().bytes(), 0}};
    while (search.advance()) found.push_back({search.schedule().bytes(), search.schedule().seconds_again});
    const auto least = [](const std::vector<Choice>& of) {
      return std::ranges::min(of, {}, &Choice::bytes).bytes;
    };
    smallest.push_back(static_cast<double>(least(found)) / static_cast<double>(least(choices)));
    for (int part = 1; part <= 9; ++part) {
      const std::size_t full = choices[0].bytes,
                        budget = full - (full - least(choices)) * static_cast<std::size_t>(part) / 10;
      const double best = cheapest(choices, budget), ours = cheapest(found, budget);
      if (ours < std::numeric_limits<double>::infinity())
        excess.push_back((ours - best) / total_seconds(step));
    }
  }
  std::ranges::sort(excess);
  std::ranges::sort(smallest);
  INFO("median " << excess[excess.size() / 2] << ", nine tenths " << excess[excess.size() * 9 / 10]
                 << ", smallest " << smallest[smallest.size() / 2] << " to " << smallest.back() << " of "
                 << excess.size());
  CHECK(excess[excess.size() / 2] <= 0.05);
  CHECK(excess[excess.size() * 9 / 10] <= 0.25);
  CHECK(smallest[smallest.size() / 2] <= 1.05);
  CHECK(excess.size() >= 60 * 7);
}
