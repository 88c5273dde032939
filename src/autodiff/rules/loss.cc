// Gradients of losses.
#include "src/autodiff/rule.h"

namespace rekindle::autodiff {
namespace {

// exp(scores - logsumexp) are the probabilities: nothing of the scores' size is saved besides the scores.
Status cross_entropy_loss_gradient(RuleContext& ctx) {
  if (ctx.dy(1) != nullptr) return ctx.unsupported("its logsumexp needs a gradient");
  if (ctx.needs(2)) return ctx.unsupported("its class weights need a gradient");
  ctx.set_dx(0, ctx.rekindle_op("CrossEntropyLossGradient",
                                {ctx.dy(), ctx.x(0), ctx.x(1), ctx.y(1), ctx.x(2)}, ctx.node().attributes()));
  return {};
}

REKINDLE_GRADIENT("rekindle", "CrossEntropyLoss", cross_entropy_loss_gradient);

}  // namespace
}  // namespace rekindle::autodiff
