// StateWrites: how the last outputs of a graph get into the buffers and arguments that its forward writes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "session/session.h"

namespace rekindle::python {

// Says which tensors of a call take the last outputs of a graph, in the order of these outputs.
struct StateWrites {
  std::vector<std::size_t> positions;  // among the call's tensors and, after them, the state
  // Places in `positions` of those that eager's operators do not count as versions, as a batch norm its
  // statistics.
  std::vector<std::size_t> silent;
  // Says which of the tensors eager's backward reads after the writes; `tensor` is the place in `positions`.
  std::shared_ptr<const std::vector<session::SavedTensor>> saved;
};

// Writes the last of `outputs` to `written`, all or nothing, and lets a backward refuse later writes where
// eager's would. `before`: copies of what was written. Throws what eager's write throws.
void write_outputs(const StateWrites& writes, const std::vector<at::Tensor>& written,
                   const std::vector<at::Tensor>& before, const std::vector<at::Tensor>& outputs);

// Gives tensors back what they had, after an error.
void write_back(const std::vector<at::Tensor>& written, const std::vector<at::Tensor>& before);

}  // namespace rekindle::python
