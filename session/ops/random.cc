// Dropout. The mask's draws are eager's, in eager's order, and it is kept as one byte an element.
#include "kernels/dropout.h"

#include "session/op.h"

namespace rekindle::session {
namespace {

// Outputs: y, mask. Not in training (or ratio 0) it is the identity and the mask is all true.
Lowering lower_dropout(const LowerContext& context) {
  const double ratio = context.has(1) ? context.scalar(1) : 0.5;
  const bool training = context.has(2) && context.scalar(2) != 0;
  Lowering lowering;
  lowering.outputs = {{context.dtype(0), context.sizes(0), std::nullopt}, {at::kBool, context.sizes(0), std::nullopt}};
  lowering.in_place = {0};
  if (!training || ratio == 0.0) {
    lowering.kernel = [](const Args& args) {
      args.out(0).copy_(args.in(0));
      args.out(1).fill_(true);
    };
    return lowering;
  }
  lowering.kernel = [ratio, dense = context.meta(0).is_contiguous()](const Args& args) {
    if (!dense) args.out(0).copy_(args.in(0));
    kernels::dropout_forward(dense ? args.in(0) : args.out(0), ratio, args.out(0), args.out(1));
  };
  return lowering;
}

Lowering lower_dropout_gradient(const LowerContext& context) {
  const double ratio = context.scalar(2);
  return computed(context.dtype(0), context.sizes(0), [ratio, dense = context.meta(0).is_contiguous()](const Args& args) {
    if (!dense) args.out().copy_(args.in(0));
    kernels::dropout_from_mask(dense ? args.in(0) : args.out(), args.in(1), ratio, args.out());
  }, {0});
}

}  // namespace

REKINDLE_OP("", "Dropout", lower_dropout);
REKINDLE_OP("rekindle", "DropoutGradient", lower_dropout_gradient);

}  // namespace rekindle::session
