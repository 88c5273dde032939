// Gradients of attention.
#include "src/autodiff/rule.h"

namespace rekindle::autodiff {
namespace {

// Reads the output and its logsumexp, from which the scores are made again; no [L, S] matrix is saved.
Status attention_gradient(RuleContext& ctx) {
  if (ctx.dy(1) != nullptr) return ctx.unsupported("its logsumexp needs a gradient");
  if (ctx.needs(3)) return ctx.unsupported("its mask needs a gradient; detach the mask in the model");
  const std::vector<Value*> dx = ctx.rekindle_op(
      "ScaledDotProductAttentionGradient",
      {ctx.dy(), ctx.x(0), ctx.x(1), ctx.x(2), ctx.y(0), ctx.y(1), ctx.x(3)}, ctx.node().attributes(), 3);
  for (std::size_t i = 0; i < 3; ++i) ctx.set_dx(i, dx[i]);
  return {};
}

REKINDLE_GRADIENT("rekindle", "ScaledDotProductAttention", attention_gradient);

}  // namespace
}  // namespace rekindle::autodiff
