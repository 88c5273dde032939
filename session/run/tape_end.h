// What the two tapes (tape.h, host_tape.h) share: the end of what they record, and the keys to record under.
// Internal to the session room.
#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/function.h>

#include <memory>

namespace rekindle::session {

// A node that stands for tracked inputs. It is never run: the engine stops before it, for their gradients are
// what is asked for. `name` is what autograd's own messages call it.
std::shared_ptr<torch::autograd::Node> make_tape_end(const char* name);

// Kernels run below autograd; these keys are what a user's own call would have.
c10::impl::LocalDispatchKeySet keys_with_autograd();

}  // namespace rekindle::session
