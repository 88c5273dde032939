// Gradients of ops that draw random numbers.
#include "src/autodiff/rule.h"

namespace rekindle::autodiff {
namespace {

Status dropout_gradient(RuleContext& ctx) {
  if (ctx.dy() == nullptr) return {};
  const Value* mode = ctx.x(2);
  const graph::ConstantPtr training = mode != nullptr ? graph::constant_of(mode) : nullptr;
  if (mode != nullptr && training == nullptr) return ctx.unsupported("its training_mode is not constant");
  if (training == nullptr || graph::scalar_value(*training) == 0) {  // the identity
    ctx.set_dx(0, ctx.dy());
    return {};
  }
  Value* ratio = ctx.x(1) != nullptr ? ctx.x(1) : ctx.scalar(0.5, ctx.x());
  ctx.set_dx(0, ctx.rekindle_op("DropoutGradient", {ctx.dy(), ctx.y(1), ratio}));
  return {};
}

REKINDLE_GRADIENT("", "Dropout", dropout_gradient);

}  // namespace
}  // namespace rekindle::autodiff
