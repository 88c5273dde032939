// Gradients of ops that read or write at indices.
#include "src/autodiff/rule.h"

namespace rekindle::autodiff {
namespace {

Status gather_gradient(RuleContext& ctx) {
  ctx.set_dx(0, ctx.rekindle_op("GatherGradient", {ctx.dy(), ctx.x(1), ctx.x(0)},
                                {{"axis", ctx.node().int_attribute("axis", 0)}}));
  return {};
}

Status embedding_gradient(RuleContext& ctx) {
  ctx.set_dx(0, ctx.rekindle_op("EmbeddingGradient", {ctx.dy(), ctx.x(1), ctx.x(0)},
                                {{"padding_idx", ctx.node().int_attribute("padding_idx", -1)}}));
  return {};
}

// An index that is read twice gets the sum of both cotangents.
Status gather_elements_gradient(RuleContext& ctx) {
  Value* zeros = ctx.rekindle_op("ZerosLike", {ctx.x(0)});
  ctx.set_dx(0, ctx.op("ScatterElements", {zeros, ctx.x(1), ctx.dy()},
                       {{"axis", ctx.node().int_attribute("axis", 0)}, {"reduction", "add"}}));
  return {};
}

Status gather_nd_gradient(RuleContext& ctx) {
  if (ctx.node().int_attribute("batch_dims", 0) != 0) return ctx.unsupported("batch_dims is not 0");
  Value* zeros = ctx.rekindle_op("ZerosLike", {ctx.x(0)});
  ctx.set_dx(0, ctx.op("ScatterND", {zeros, ctx.x(1), ctx.dy()}, {{"reduction", "add"}}));
  return {};
}

// What was overwritten gets zeros; what was written gets the cotangent of its place.
Status scatter_gradient(RuleContext& ctx, const char* gather, const Attributes& place) {
  const std::string reduction = ctx.node().string_attribute("reduction", "none");
  if (reduction != "none" && reduction != "add") {
    return ctx.unsupported("reduction is \"" + reduction + "\", only \"none\" and \"add\" have a rule");
  }
  if (ctx.needs(0) && reduction == "add") ctx.set_dx(0, ctx.dy());
  if (ctx.needs(0) && reduction == "none") {
    ctx.set_dx(0, ctx.op(ctx.node().op_type(), {ctx.dy(), ctx.x(1), ctx.rekindle_op("ZerosLike", {ctx.x(2)})},
                         place));
  }
  if (ctx.needs(2)) ctx.set_dx(2, ctx.op(gather, {ctx.dy(), ctx.x(1)}, place));
  return {};
}

Status scatter_elements_gradient(RuleContext& ctx) {
  return scatter_gradient(ctx, "GatherElements", {{"axis", ctx.node().int_attribute("axis", 0)}});
}

Status scatter_nd_gradient(RuleContext& ctx) { return scatter_gradient(ctx, "GatherND", {}); }

REKINDLE_GRADIENT("", "Gather", gather_gradient);
REKINDLE_GRADIENT("", "GatherElements", gather_elements_gradient);
REKINDLE_GRADIENT("", "GatherND", gather_nd_gradient);
REKINDLE_GRADIENT("", "ScatterElements", scatter_elements_gradient);
REKINDLE_GRADIENT("", "ScatterND", scatter_nd_gradient);
REKINDLE_GRADIENT("rekindle", "Embedding", embedding_gradient);

}  // namespace
}  // namespace rekindle::autodiff
