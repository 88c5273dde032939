// needs_eager() tells whether a backward has to run eager's own nodes, with the forward done once more,
// because what is asked of it no plan is for. Internal to the session room.
#pragma once

#include <torch/csrc/autograd/variable.h>

#include <vector>

namespace rekindle::session {

// For the backward of this thread, given `cotangents`: create_graph=True; is_grads_batched=True, whose
// cotangents stand for many; a mode that sees operators, and is to see those of eager; cotangents that are
// not strided, as sparse ones, which stay sparse in eager.
bool needs_eager(const std::vector<at::Tensor>& cotangents);

}  // namespace rekindle::session
