// Eager's error in a backward that reads what its forward wrote, if that was written later.
//
// A graph's backward reads what the graph has saved, which may be something else (a copy of a counter that
// the forward has raised, where eager saves the counter). What eager would say is found out at the export
// (python/rekindle/miss/saved_by_backward.py).
#pragma once

#include <ATen/core/TensorBody.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace rekindle::session {

// Lets the backward that the first result with a gradient begins throw c10::Error, in eager's words, where
// one of `written`, none of it with a history, was written after now. Keeps version counters alive, no
// tensors.
void refuse_later_writes(std::span<const at::Tensor> results, std::span<const at::Tensor> written);

// Counts what was written to tensors since these versions as no write of the user's: it has left the values
// as they were. Thread-safe.
void note_own_writes(std::span<const std::pair<at::Tensor, std::uint32_t>> versions);

}  // namespace rekindle::session
