// Tells whether a backward has to run eager's own nodes, with the forward done once more, because what is
// asked of it no plan is for, or because somebody looks at these nodes. Internal to the session room.
#pragma once

#include <torch/csrc/autograd/variable.h>

#include <vector>

namespace rekindle::session {

// For the backward of this thread, given `cotangents`: create_graph=True; is_grads_batched=True, whose
// cotangents stand for many; cotangents that are not strided, as sparse ones, which stay sparse in eager.
bool needs_eager(const std::vector<at::Tensor>& cotangents);

// In this thread: torch.autograd.detect_anomaly, which looks for NaN, as only eager's nodes show one that a
// later node hides; or a mode that sees operators.
bool is_watched();

}  // namespace rekindle::session
