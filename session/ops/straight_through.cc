// The value of one tensor with the gradient of another, and the operator that exports trace for it.
#include <ATen/ops/clone.h>
#include <torch/library.h>

#include "session/lower/op.h"

namespace rekindle::session {
namespace {

// Inputs: the value, and what has the gradient.
Lowering lower_straight_through(const LowerContext& context) {
  return viewed(context, context.sizes(0),
                [](const at::Tensor& x) { return x.as_strided(x.sizes(), x.strides()); });
}

// Runs in exports only, where the eager tensors have their gradients from eager's own write; what a trace
// computes from it has to look as if it had one.
at::Tensor straight_through(const at::Tensor& value, const at::Tensor& x) {
  return value.detach().clone().set_requires_grad(x.requires_grad());
}

}  // namespace

REKINDLE_OP("rekindle", "StraightThrough", lower_straight_through);

TORCH_LIBRARY_FRAGMENT(rekindle, library) {
  library.def("straight_through(Tensor value, Tensor x) -> Tensor", &straight_through);
}

}  // namespace rekindle::session
