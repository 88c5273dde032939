// Tensors that PyTorch has allocated, in the layouts that a plan has for them. Internal to the session room.
#pragma once

#include <string>

#include "session/lower/op.h"

namespace rekindle::session {

// A dense tensor's own layout; row-major of the same sizes for one that is not dense.
Layout layout_of(const at::Tensor& tensor);

// Throws PlanMismatch for another dtype or size than planned, and c10::Error for no dense tensor; `name` is
// in messages.
void check_result(const at::Tensor& tensor, const Layout& planned, const std::string& name);

// `tensor` in memory of its own with the planned layout: itself, or a copy. `shared`: its memory has other
// owners. Throws PlanMismatch for another dtype or size; `name` is in messages.
at::Tensor settled(at::Tensor tensor, const Layout& planned, bool shared, const std::string& name);
// The same of a gradient, which can be a view of a cotangent, or the same for two inputs: whoever gets it may
// write to it.
at::Tensor settled_gradient(at::Tensor gradient, const Layout& planned, const std::string& name);

}  // namespace rekindle::session
