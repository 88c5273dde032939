// Gradients of normalizations.
#include "src/autodiff/rule.h"

namespace rekindle::autodiff {
namespace {

// Reads the statistics that the forward pass makes anyway (outputs 1 and 2).
Status layer_normalization_gradient(RuleContext& ctx) {
  if (ctx.dy(1) != nullptr || ctx.dy(2) != nullptr)
    return ctx.unsupported("its mean or deviation needs a gradient");
  const std::size_t outputs = ctx.x(2) != nullptr ? 3 : 2;
  const std::vector<Value*> dx = ctx.rekindle_op("LayerNormalizationGradient",
                                                 {ctx.dy(), ctx.x(0), ctx.y(1), ctx.y(2), ctx.x(1), ctx.x(2)},
                                                 {{"axis", ctx.node().int_attribute("axis", -1)}}, outputs);
  for (std::size_t i = 0; i < outputs; ++i) ctx.set_dx(i, dx[i]);
  return {};
}

REKINDLE_GRADIENT("", "LayerNormalization", layer_normalization_gradient);

}  // namespace
}  // namespace rekindle::autodiff
