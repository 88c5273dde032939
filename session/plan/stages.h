// The stages by which make_plan() turns a joint graph and input layouts into a Plan: a function and a record
// each. No stage looks back.
//
//   lower_graph    each node, in order: what is known now becomes a constant, views become slots, the rest
//                  becomes instructions; what reads values of open sizes is deferred (session/run/deferred.h)
//   claim_results  outputs and gradients get memory of their own, or are copied; what nobody reads goes, and
//                  constants that are read get to the device
//   fit_budget     the backward makes forward values again that take too much memory (budget.h)
//   fuse_pointwise on an accelerator, instructions that follow from each other become one (fuse_pointwise.h)
//   place_slots    each output takes over the memory of a dying input, or gets its place in the arena
//   schedule       what the backward finds saved, when gradients leave, when memory goes, what may be absent
//
// An example: `y = Relu(x + w)`, with a gradient of w. lower_graph() makes Add, Relu and, in the backward,
// ReluGrad, each with an output in the arena. claim_results() makes y and the gradient fresh, as the caller
// keeps them. place_slots() lets Relu write to the sum's memory, so that this is y's and the arena is empty.
// schedule() notes that the backward reads y.
#pragma once

#include <cstddef>
#include <memory>
#include <unordered_map>
#include <vector>

#include "session/plan/plan.h"

namespace rekindle::session {

// Every value has a slot. Programs have inputs and no outputs.
struct Lowered {
  Programs programs;
  std::unordered_map<const graph::Value*, SlotId> slot_of;
};

// Programs have outputs: each with memory of its own, which nothing but its program writes.
struct Claimed {
  Programs programs;
};

// Slots of the arena have offsets, the others' memory is somebody's.
struct Placed {
  Programs programs;
  std::size_t arena_bytes = 0;
};

// All throw c10::Error; lower_graph() with the node's name.
Lowered lower_graph(const PlanRequest& request);
Claimed claim_results(const PlanRequest& request, Lowered lowered);
Placed place_slots(const PlanRequest& request, Claimed claimed);
// The rest of the plan but for what the request says of it.
Plan schedule(const PlanRequest& request, Placed placed);

// Per slot that owns memory, the number in the timeline of the last instruction that touches it; -1 where
// none does. What other backwards may read lives until the backward begins.
std::vector<std::int32_t> last_uses(Programs& programs, const KeptValues& kept);

}  // namespace rekindle::session
