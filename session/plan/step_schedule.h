// schedule_of(): a step in which the backward makes some of the forward's values again, and what it holds
// when.
//
// An example: a = f(x), b = g(a), and a backward that reads b, then a. With a cut of `a` at the end of the
// forward, f runs a second time, right before the backward's second operation; b and the first a are as they
// were. Were b cut, too, g would run again for the first operation, and before it f, whose result the second
// operation then finds.
//
// Sizes are sums of live bytes; where values lie, and what is lost to gaps, is for the planner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rekindle::session {

struct StepValue {
  enum class Place : std::uint8_t { kUncounted, kArena, kOutside };

  std::size_t bytes = 0;
  Place place = Place::kUncounted;  // uncounted: the caller's, or the plan's own
  std::int32_t made_by = -1;        // its operation; -1: it is there before the step
  bool can_drop = false;            // the forward makes it, and may do so again
  bool is_kept = false;             // until the backward begins, even if that does not read it
};

// Describes one instruction to the search.
struct StepOperation {
  std::vector<std::uint32_t> reads, writes;  // values, each once
  std::vector<std::uint32_t> may_take;       // reads whose memory the first write takes over if they die here
  double seconds = 0;                        // estimated
  // A second run makes the first write only, and reads the others: it draws no random numbers again.
  bool replays = false;

  std::vector<std::uint32_t> reads_again() const;
  std::vector<std::uint32_t> writes_again() const;
};

struct Step {
  std::vector<StepValue> values;
  std::vector<StepOperation> operations;  // those of the forward first
  std::uint32_t backward = 0;             // the number of the first one of the backward
};

// Per value, the operations over which it is not held: after a cut, an operation of the backward that reads
// the value finds it only if it was made again since. Sorted.
using StepCuts = std::vector<std::vector<std::uint32_t>>;

struct StepSchedule {
  // One run of an operation: for itself or, again, for a later one, the block, which needs what it makes.
  struct Event {
    std::uint32_t operation = 0, block = 0;
    std::vector<std::uint32_t> reads, writes;  // instances, in the operation's order
    bool is_again() const { return operation != block; }
  };
  // A value as one event has made it, or as it was there before.
  struct Instance {
    std::uint32_t value = 0;
    std::int32_t first = 0, last = -1;   // events, both inclusive
    std::vector<std::uint32_t> read_at;  // events
  };
  std::vector<Event> events;        // in the order in which they run
  std::vector<Instance> instances;  // those of the forward have their values' numbers; the others come after
  std::vector<bool> read_again;     // per value: another instance than the forward's is read
  std::uint32_t backward = 0;       // the first event of the backward
  std::size_t arena_bytes = 0, outside_bytes = 0;       // the largest sums of live bytes
  std::int32_t fullest_arena = 0, fullest_outside = 0;  // events with these
  double seconds_again = 0;                             // of operations that run again, estimated

  std::size_t bytes() const { return arena_bytes + outside_bytes; }
  // Returns whether the backward reads only copies that it has made of the value itself, so that the forward
  // need not leave it.
  bool is_dropped(std::uint32_t value) const;
};

StepSchedule schedule_of(const Step& step, const StepCuts& cuts);

// Returns whether operation `to` finds a value that operation `from` reads or makes: no cut lies between
// them.
bool is_held(const StepCuts& cuts, std::uint32_t value, std::uint32_t from, std::uint32_t to);

}  // namespace rekindle::session
