// Converts what Python says of a memory plan: None, or the file that it is from and (kind, number) of each
// kind.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "session/plan/memory_plan.h"

namespace rekindle::python {

using NamedPlan = std::optional<std::pair<std::string, std::vector<std::pair<std::string, std::int64_t>>>>;

inline std::optional<session::MemoryPlan> plan_of(NamedPlan&& named) {
  if (!named) return std::nullopt;
  session::MemoryPlan plan{std::move(named->first), {}};
  for (auto& [kind, recompute] : named->second) plan.kinds.push_back({std::move(kind), recompute});
  return plan;
}

}  // namespace rekindle::python
