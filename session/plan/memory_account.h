// account_of(): where the bytes of one plan go, and when. Read from the plan that runs, not estimated.
//
// An example: `h = Linear(x, w); y = Relu(h)` with a gradient of w. If Relu writes over h, the account has
// two values in one place of the arena: h during instruction 0, then y. No byte counts twice at any
// instruction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "session/plan/memory_plan.h"

namespace rekindle::session {

struct Plan;

enum class MemoryUse : std::uint8_t {
  kIntermediate,  // within the forward, or within the backward
  kSaved,         // the backward reads what the forward made
  kScratch,       // during one instruction
  kResult,        // the caller gets it
  kGradient,      // the backward's: PyTorch gets it
};

// Memory that an instruction makes. Its lifetime is in numbers of instructions, those of the forward before
// those of the backward, both ends inclusive. What leaves the session counts until the end.
struct AccountedValue {
  std::string name;  // of the graph's value; empty for scratch and copies of results
  std::string op,
      source;  // of the node that makes it: op type, line of Python; source is empty where there is none
  MemoryUse use = MemoryUse::kIntermediate;
  bool saved = false;                 // the backward reads it; also true of results that it reads
  std::size_t bytes = 0;              // in the arena: rounded up to the device's alignment
  std::optional<std::size_t> offset;  // in the arena; none: memory of its own
  std::int32_t first = 0, last = 0;
};

// A value whose bytes nobody knows before it is computed, such as sizes that depend on data, or what
// PyTorch's autograd keeps of an operator. It is in no sum.
struct UncountedValue {
  std::string name, op, source;
  MemoryUse use = MemoryUse::kIntermediate;
  bool saved = false;
};

// One program of a plan.
struct PhaseMemory {
  std::int32_t instructions = 0;
  std::size_t live_peak = 0;      // the largest sum of live bytes in the arena, at instruction `live_peak_at`
  std::int32_t live_peak_at = 0;  // its number in the whole timeline
  std::size_t outside_peak = 0;   // the largest sum of live bytes that are not in the arena
};

struct BudgetAccount {
  std::size_t bytes = 0;         // the budget
  std::size_t without = 0;       // what activations would take without it, in bytes
  std::size_t instructions = 0;  // that run a second time
  double share = 0;              // of the step's estimated time that these add
};

// All in bytes.
struct MemoryAccount {
  std::size_t arena_bytes = 0;
  std::size_t constant_bytes = 0;   // owned by the plan
  std::size_t cotangent_bytes = 0;  // what the backward is given
  // The arena and, beside it, the largest sum of what is neither a result nor a gradient: what a memory
  // budget is for.
  std::size_t activation_bytes = 0;
  std::optional<BudgetAccount> budget;  // none: there is no budget
  PhaseMemory forward, backward;
  std::vector<AccountedValue>
      values;  // in the order in which they are made; those without bytes are left out
  std::vector<UncountedValue> uncounted;
  std::vector<SubgraphKind> subgraphs;  // what could be made again; account_of() leaves that to PlanCache
};

MemoryAccount account_of(const Plan& plan);

}  // namespace rekindle::session
