#include "session/plan/budget.h"

#include <algorithm>
#include <utility>

#include "session/plan/checkpoints.h"
#include "session/plan/fuse_pointwise.h"
#include "session/plan/fused_again.h"
#include "session/plan/recompute_search.h"
#include "session/plan/repeat_instructions.h"
#include "session/plan/step_of.h"
#include "session/plan/subgraphs.h"

namespace rekindle::session {
namespace {

// States of the search are looked at whose sum is smaller than that of the last by this share of the first.
constexpr double kStride = 0.005;
// A search that gains less than a stride in so many states, and as many as a part of the step, has ended.
constexpr std::size_t kPatience = 64;

class Fitting {
 public:
  Fitting(const PlanRequest& request, Programs programs)
      : request_(request),
        programs_(std::move(programs)),
        step_(step_of(programs_, *request.kept, rule_of(request, programs_), request.device)),
        search_(step_) {}

  Fitted run() {
    if (request_.dropped != nullptr) return drop_as_before();
    if (request_.memory_plan != nullptr) return follow_plan();
    if (follows_checkpoints(request_, programs_)) return follow_checkpoints();
    if (fuses(request_)) search_.drop(fused_again(programs_));
    if (!request_.budget) return spend();
    Fitted best = measured(search_.schedule());
    const std::size_t without = best.recomputation.activation_bytes;
    const std::size_t budget = request_.budget.of(without);
    std::size_t seen = search_.schedule().bytes();
    const auto stride = static_cast<std::size_t>(kStride * static_cast<double>(seen)) + 1;
    for (std::size_t idle = 0; best.recomputation.activation_bytes > budget && idle < patience(); ++idle) {
      if (!search_.advance()) break;
      const std::size_t bytes = search_.schedule().bytes();
      if (bytes + stride > seen) continue;
      seen = bytes;
      idle = 0;
      if (bytes > budget) {
        smallest_ = search_.schedule();
        continue;
      }
      Fitted next = measured(search_.schedule());
      if (next.recomputation.activation_bytes < best.recomputation.activation_bytes) best = std::move(next);
    }
    return ended(std::move(best), budget, without);
  }

 private:
  static DropRule rule_of(const PlanRequest& request, const Programs& programs) {
    const bool asked = request.decides_recomputation() || follows_checkpoints(request, programs);
    return asked ? DropRule() : DropRule{kMaxKeptBytes, true};
  }

  double seconds() const {
    double seconds = 0;
    for (const StepOperation& operation : step_.operations) seconds += operation.seconds;
    return seconds;
  }

  // The least memory that the request's time buys.
  Fitted spend() {
    const double most = request_.budget.time * seconds();
    StepSchedule best = search_.schedule();
    const double for_nothing = best.seconds_again;  // a fused kernel takes no longer for it
    for (std::size_t idle = 0; idle < patience() && search_.advance(); ++idle) {
      const StepSchedule& next = search_.schedule();
      if (next.seconds_again > most + for_nothing) break;
      if (next.bytes() < best.bytes()) best = next;
    }
    return fitted(best);
  }

  std::size_t patience() const { return kPatience + step_.operations.size() / 32; }

  // Where the budget was not met, the smallest that there is.
  Fitted ended(Fitted best, std::size_t budget, std::size_t without) {
    if (best.recomputation.activation_bytes > budget && !smallest_.events.empty()) {
      Fitted last = measured(smallest_);
      if (last.recomputation.activation_bytes < best.recomputation.activation_bytes) best = std::move(last);
    }
    best.recomputation.budget_bytes = budget;
    best.recomputation.bytes_without = without;
    return best;
  }

  // For another part of the backward of a forward that has run with a plan that has dropped these.
  Fitted drop_as_before() {
    const std::unordered_set<std::string> names(request_.dropped->begin(), request_.dropped->end());
    std::vector<std::uint32_t> values;
    for (SlotId slot = 1; slot < programs_.slots.size(); ++slot) {
      const Slot& of = programs_.slots[slot];
      if (of.value != nullptr && names.contains(of.value->name())) values.push_back(slot);
    }
    search_.drop(values);
    Fitted made = fitted(search_.schedule());
    made.recomputation.dropped = *request_.dropped;  // also what this part does not read
    return made;
  }

  // What the user has written down, and nothing else.
  Fitted follow_plan() {
    PlannedValues planned = planned_values(subgraphs_of(programs_, step_), *request_.memory_plan);
    search_.drop(planned.values);
    Fitted made = fitted(search_.schedule());
    made.recomputation.unmet = std::move(planned.unmet);
    return made;
  }

  // What the user has wrapped into torch.utils.checkpoint, and nothing else.
  Fitted follow_checkpoints() {
    search_.drop(checkpointed_values(programs_));
    return fitted(search_.schedule());
  }

  Fitted fitted(const StepSchedule& schedule) const {
    Fitted made{repeat_instructions(programs_, schedule), *request_.kept, {}};
    Recomputation& again = made.recomputation;
    for (SlotId slot = 1; slot < programs_.slots.size(); ++slot) {
      if (!schedule.is_dropped(programs_.root_of(slot))) continue;
      const graph::Value* value = programs_.slots[slot].value;
      if (value == nullptr) continue;
      made.kept.read.erase(value->name());
      made.kept.recomputed.erase(value->name());
      if (programs_.root_of(slot) == slot) again.dropped.push_back(value->name());
    }
    again.share = step_.operations.empty() ? 0 : schedule.seconds_again / seconds();
    add_reads(schedule, again);
    return made;
  }

  // The same, with what it takes, gaps in the arena included.
  Fitted measured(const StepSchedule& schedule) const {
    Fitted made = fitted(schedule);
    PlanRequest request = request_;
    request.kept = &made.kept;
    const std::size_t arena = place_slots(request, fuse_pointwise(request, {made.programs})).arena_bytes;
    made.recomputation.activation_bytes = arena + schedule.outside_bytes;
    return made;
  }

  // What instructions that run again read of the forward.
  void add_reads(const StepSchedule& schedule, Recomputation& again) const {
    for (const StepSchedule::Event& event : schedule.events) {
      if (!event.is_again()) continue;
      ++again.instructions;
      for (const std::uint32_t instance : event.reads) {
        if (instance >= programs_.slots.size()) continue;
        const graph::Value* value = programs_.slots[instance].value;
        if (value != nullptr) again.reads.insert(value->name());
      }
    }
  }

  const PlanRequest& request_;
  const Programs programs_;
  const Step step_;
  RecomputeSearch search_;
  StepSchedule smallest_;
};

}  // namespace

Fitted fit_budget(const PlanRequest& request, Claimed claimed) {
  const bool free = !request.budget && request.budget.time <= 0 && request.memory_plan == nullptr;
  if (!request.record || (free && (request.dropped == nullptr || request.dropped->empty())))
    return {std::move(claimed.programs), *request.kept, {}};
  return Fitting(request, std::move(claimed.programs)).run();
}

std::vector<SubgraphKind> recomputable_kinds(const PlanRequest& request, const Recomputation& made) {
  const Claimed claimed = claim_results(request, lower_graph(request));
  const Step step = step_of(claimed.programs, *request.kept, {}, request.device);
  return kinds_of(claimed.programs, step, {made.dropped.begin(), made.dropped.end()});
}

}  // namespace rekindle::session
