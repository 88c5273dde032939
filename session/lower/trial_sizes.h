// Results of operators whose sizes depend on data, for a size that is made up: ranks and the other dimensions
// follow. Internal to the session room.
#pragma once

#include <optional>
#include <vector>

#include "session/lower/op.h"

namespace rekindle::session {

// Meta tensors like the results of a node of the torch domain that is sized by data, were all
// the sizes that depend on data `size`. nullopt for an operator, or a host function, of which
// nobody knows which sizes these are.
// An undefined input is one that is not known.
std::optional<std::vector<at::Tensor>> results_of_size(const graph::Node& node,
                                                       const std::vector<at::Tensor>& inputs,
                                                       std::int64_t size);

// True for a recurrent network of packed sequences. PyTorch has no meta kernel for it; results_of_size()
// gives its results, of the sequences and weights alone.
bool is_packed_recurrence(const graph::Node& node);

}  // namespace rekindle::session
