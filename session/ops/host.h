// Calls of host functions (session/host_function.h) and their gradients, as nodes of the torch domain.
// Internal to the session room.
#pragma once

#include "session/lower/op.h"

namespace rekindle::session {

Lowering lower_host(const LowerContext& context);
// Of the TorchGradient node that reads the tape of a call.
Lowering lower_host_gradient(const LowerContext& context);

}  // namespace rekindle::session
