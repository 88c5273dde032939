// Runs a lowering outside of any plan. Internal to the session room.
#pragma once

#include <vector>

#include "session/lower/op.h"

namespace rekindle::session {

// What a node gives: per output a tensor, or what it is that is no tensor.
struct NodeResults {
  std::vector<at::Tensor> tensors;
  std::vector<Held> held;
};

// The lowering's constants, views of input 0 where its layout allows them, else what the kernel writes to new
// memory on the inputs' device. `held`: per input what it is that is no tensor; may be empty. Throws
// c10::Error, as the kernel does.
NodeResults run_lowering(const Lowering& lowering, const std::vector<at::Tensor>& inputs,
                         const std::vector<Held>& held);

}  // namespace rekindle::session
