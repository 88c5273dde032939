// subgraphs_of(): the places of a step whose values the backward could make again, and of which kind they
// are.
//
// A place is an instruction of the forward that makes values which the backward reads. Its subgraph is what
// runs again if the forward lets go of these values and of no other place's: the instruction, and those
// before it back to what is there anyway. The kind is the subgraph's ops in their order, joined by '+'.
//
// An example: of `h = Linear(x, w); y = Tanh(h)` the backward reads y, not h: the kind of y is "Linear+Tanh".
// In `h = Linear(x, w); y = Gelu(h); z = Linear(y, v)` it reads h and y: their kinds are "Linear" and "Gelu".
// Layers that are alike have places of the same kinds.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "session/plan/memory_plan.h"
#include "session/plan/plan.h"
#include "session/plan/step_schedule.h"

namespace rekindle::session {

struct Subgraph {
  std::string kind;
  std::vector<std::uint32_t> saved;       // the place's values, that the backward reads
  std::vector<std::uint32_t> between;     // those that are made on the way to them
  std::vector<std::uint32_t> held;        // those that are held instead, as they cannot be made again
  std::vector<std::uint32_t> operations;  // in their order; the last is the place
  std::size_t bytes = 0;                  // of `saved`, less those of `held`
};

// In the order of the graph. `step` is step_of() the programs. Every place frees memory: with more of them
// made again, the forward never leaves more.
std::vector<Subgraph> subgraphs_of(const Programs& programs, const Step& step);

// One row a kind, that which frees the most bytes first. `dropped`: the forward values that the plan at hand
// makes again, by name.
std::vector<SubgraphKind> kinds_of(const Programs& programs, const Step& step,
                                   const std::unordered_set<std::string>& dropped);

struct PlannedValues {
  std::vector<std::uint32_t> values;  // that the forward does not leave
  // The kinds that the plan asks for and the graph has not got, and those that it has; else empty.
  std::string unmet;
};
// Takes all places of a kind of which the plan asks for more: it may be for several graphs.
PlannedValues planned_values(const std::vector<Subgraph>& subgraphs, const MemoryPlan& plan);

}  // namespace rekindle::session
