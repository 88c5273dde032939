// RecomputeSearch: which values of a step to make again in its backward, so that less is held at its fullest.
//
// An example: a = f(x), b = g(a), and a backward that reads b, then a. Both are alive when it begins. If f
// frees the most bytes a second, the first advance() drops `a`. A second one drops b, for which f and g then
// run again; `a` stays from there on.
//
// A value is dropped over a moment of the step, not for good: it may be made several times, and stay in
// between where memory is not scarce (retention intervals, as in Bartan et al., "Moccasin", 2023). Each step
// of the search looks at the fullest moment and takes the best ratio there. It knows no budget, so that a
// smaller budget means a later state of the same search, and never takes more memory than a larger one.
#pragma once

#include <cstdint>
#include <vector>

#include "session/plan/step_schedule.h"

namespace rekindle::session {

class RecomputeSearch {
 public:
  // `step` has to outlive this.
  explicit RecomputeSearch(const Step& step);

  const StepSchedule& schedule() const { return schedule_; }
  // Drops more at the fullest moments; false where nothing is left that can be dropped there. The largest sum
  // need not fall at once.
  bool advance();
  // Drops values from the end of the forward until the backward reads them.
  void drop(const std::vector<std::uint32_t>& values);

 private:
  // Values that are dropped together, over an operation.
  struct Candidate {
    double score = 0;  // bytes a second
    std::uint32_t cut = 0;
    std::vector<std::uint32_t> values;
  };
  // Adds up what it would take to make a value again.
  struct Again {
    std::int32_t event = 0;   // over which it is not held
    std::uint32_t block = 0;  // for which it is made again
    std::int64_t freed = 0;   // bytes at the event
    double seconds = 0;
    std::vector<std::uint32_t> values;  // that are not held either
  };

  void rebuild();
  void add_candidates(std::int32_t event, StepValue::Place place, std::vector<Candidate>& found);
  bool examine(const StepSchedule::Instance& instance, std::int32_t event, Candidate& candidate);
  bool add_again(std::uint32_t value, Again& again);
  void add_read(std::uint32_t value, Again& again, std::vector<std::uint32_t>& open);
  const StepSchedule::Instance* held_at(std::uint32_t value, std::int32_t event) const;
  std::uint32_t last_block(const StepSchedule::Instance& instance) const;

  const Step& step_;
  StepCuts cuts_;
  StepSchedule schedule_;
  std::vector<std::vector<std::uint32_t>> instances_of_;  // per value
  std::vector<std::int32_t> again_at_;  // per operation: the last event that runs it again; -1: none
  std::vector<std::uint32_t> seen_;     // per value: the last candidate that has it
  std::uint32_t candidate_ = 0;         // numbers them, from 1
};

}  // namespace rekindle::session
