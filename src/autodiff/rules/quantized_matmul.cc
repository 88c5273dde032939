// Products with quantized weights: only the input has a gradient.
#include "src/autodiff/rule.h"

namespace rekindle::autodiff {
namespace {

Status matmul_bnb4_gradient(RuleContext& ctx) {
  if (ctx.needs(1) || ctx.needs(2)) return ctx.unsupported("its weights are quantized");
  Attributes attributes;
  for (const char* name : {"K", "N", "bits", "block_size", "quant_type", "transB"}) {
    if (const Attribute* attribute = ctx.node().attribute(name)) attributes[name] = *attribute;
  }
  ctx.set_dx(0, ctx.rekindle_op("MatMulBnb4Gradient", {ctx.dy(), ctx.x(1), ctx.x(2)}, std::move(attributes)));
  return {};
}

REKINDLE_GRADIENT("com.microsoft", "MatMulBnb4", matmul_bnb4_gradient);

}  // namespace
}  // namespace rekindle::autodiff
