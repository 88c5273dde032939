// Writes to tensors that leave their values as they were, which no version check is to take for the user's.
//
// A double backward runs the module again, which writes its buffers, and puts back what was there before:
// `note_own_writes({{buffer, version before}})` then lets an earlier backward read the buffer as if nothing
// had happened.
#pragma once

#include <ATen/core/TensorBody.h>

#include <cstdint>
#include <span>
#include <utility>

namespace rekindle::session {

// Counts what was written to tensors since these versions as no write of the user's: it has left the values
// as they were. Thread-safe.
void note_own_writes(std::span<const std::pair<at::Tensor, std::uint32_t>> versions);

// How often the user has written what has this counter.
std::uint32_t version_of(const c10::VariableVersion& counter);

}  // namespace rekindle::session
