// Gradients of ops that leave rows of tokens out (src/padding).
#include "src/autodiff/rule.h"

namespace rekindle::autodiff {
namespace {

// What was left out gets zeros; what was broadcast to all tokens, the sum.
Status pack_rows_gradient(RuleContext& ctx) {
  Value* whole = ctx.rekindle_op("UnpackRows", {ctx.dy(), ctx.x(1), ctx.x(2)},
                                 {{"flat", ctx.node().int_attribute("flat", 0)}});
  ctx.set_dx(0, ctx.rekindle_op("SumToSizeOf", {whole, ctx.x(0)}));
  return {};
}

Status unpack_rows_gradient(RuleContext& ctx) {
  ctx.set_dx(0, ctx.rekindle_op("PackRows", {ctx.dy(), ctx.x(1), ctx.x(2), ctx.x(3)},
                                {{"flat", ctx.node().int_attribute("flat", 0)}}));
  return {};
}

Status dropout_rows_gradient(RuleContext& ctx) {
  if (ctx.dy() == nullptr) return {};
  ctx.set_dx(0, ctx.rekindle_op("DropoutGradient", {ctx.dy(), ctx.y(1), ctx.x(1)}));
  return {};
}

REKINDLE_GRADIENT("rekindle", "PackRows", pack_rows_gradient);
REKINDLE_GRADIENT("rekindle", "UnpackRows", unpack_rows_gradient);
REKINDLE_GRADIENT("rekindle", "DropoutRows", dropout_rows_gradient);

}  // namespace
}  // namespace rekindle::autodiff
