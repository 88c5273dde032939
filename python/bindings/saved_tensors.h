// What eager's backward reads, as a contract tells it to Python: [tensor, cotangents, inputs] each.
#pragma once

#include <cstddef>
#include <tuple>
#include <utility>
#include <vector>

#include "session/session.h"

namespace rekindle::python {

using Positions = std::vector<std::size_t>;
using SavedTensors = std::vector<std::tuple<std::size_t, Positions, Positions>>;

inline std::vector<session::SavedTensor> saved_tensors_of(SavedTensors&& told) {
  std::vector<session::SavedTensor> saved;
  saved.reserve(told.size());
  for (auto& [tensor, cotangents, inputs] : told)
    saved.push_back({tensor, {std::move(cotangents), std::move(inputs)}});
  return saved;
}

}  // namespace rekindle::python
