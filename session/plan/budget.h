// fit_budget(): the stage of a plan that makes forward values again in the backward, so that a step's
// activations take no more memory than the request allows.
//
// An example: of `h = Linear(x, w); y = Gelu(h)` the backward reads h. Where h is dropped, the backward
// program has Linear once more, right before GeluGradient, with the same kernel on the same inputs: no bit
// of any result changes. Instructions that draw random numbers, call the user's code or work on sizes that
// depend on data run once.
//
// Activations are what lies in the arena and, beside it, what instructions give that is neither a result nor
// a gradient. The budget is held against the plan as it will run, gaps in the arena included.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_set>
#include <vector>

#include "session/plan/stages.h"

namespace rekindle::session {

// Claimed programs in which instructions may run again.
struct Fitted {
  Programs programs;
  KeptValues kept;  // the request's, less what was dropped
  Recomputation recomputation;
};

Fitted fit_budget(const PlanRequest& request, Claimed claimed);

// Returns the kinds of values that a backward could make again, and how many of each `made` makes. Throws
// c10::Error.
std::vector<SubgraphKind> recomputable_kinds(const PlanRequest& request, const Recomputation& made);

}  // namespace rekindle::session
