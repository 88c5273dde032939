// Converts what Python says of the tensors that eager's backward reads: a list of (tensor, cotangents,
// inputs), as in a contract's saved_tensors and saved_writes.
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
