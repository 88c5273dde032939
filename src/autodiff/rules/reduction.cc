// Gradients of reductions, softmax and cumulative sums.
#include <utility>

#include "src/autodiff/rule.h"

namespace rekindle::autodiff {
namespace {

// What an ONNX reduction reduces. `all`: every axis; otherwise `axes`, none of them when it is empty.
struct Axes {
  bool all = false;
  std::vector<std::int64_t> axes;
};

Result<Axes> reduced_axes(const RuleContext& ctx) {
  Axes result;
  if (ctx.x(1) != nullptr) {
    const graph::ConstantPtr axes = graph::constant_of(ctx.x(1));
    if (axes == nullptr) return ctx.unsupported("its axes are not constant");
    result.axes = graph::int_values(*axes);
  }
  result.all = result.axes.empty() && ctx.node().int_attribute("noop_with_empty_axes", 0) == 0;
  return result;
}

Status spread_gradient(RuleContext& ctx, const char* op_type) {
  REKINDLE_ASSIGN_OR_RETURN(const Axes reduced, reduced_axes(ctx));
  if (!reduced.all && reduced.axes.empty()) {
    ctx.set_dx(0, ctx.dy());
    return {};
  }
  Attributes attributes = {{"keepdims", ctx.node().int_attribute("keepdims", 1)}};
  if (!reduced.all) attributes["axes"] = reduced.axes;
  ctx.set_dx(0, ctx.rekindle_op(op_type, {ctx.dy(), ctx.x()}, std::move(attributes)));
  return {};
}

Status reduce_sum_gradient(RuleContext& ctx) { return spread_gradient(ctx, "SumGradient"); }
Status reduce_mean_gradient(RuleContext& ctx) { return spread_gradient(ctx, "MeanGradient"); }

// y and dy with the reduced dimensions back as ones; a result of rank 0 broadcasts as it is.
std::pair<Value*, Value*> kept(RuleContext& ctx, const Axes& reduced) {
  Value *y = ctx.y(), *dy = ctx.dy();
  if (ctx.node().int_attribute("keepdims", 1) == 0 && !reduced.axes.empty()) {
    y = ctx.op("Unsqueeze", {y, ctx.int64s(reduced.axes)});
    dy = ctx.op("Unsqueeze", {dy, ctx.int64s(reduced.axes)});
  }
  return {y, dy};
}

// Shared equally by the elements that attain the extremum.
Status reduce_extremum_gradient(RuleContext& ctx) {
  REKINDLE_ASSIGN_OR_RETURN(const Axes reduced, reduced_axes(ctx));
  const auto [y, dy] = kept(ctx, reduced);
  Value* attains = ctx.op("CastLike", {ctx.op("Equal", {ctx.x(), y}), ctx.x()});
  Value* axes = reduced.axes.empty() ? nullptr : ctx.int64s(reduced.axes);
  Value* count =
      ctx.op("ReduceSum", {attains, axes}, {{"keepdims", 1}, {"noop_with_empty_axes", reduced.all ? 0 : 1}});
  ctx.set_dx(0, ctx.op("Div", {ctx.op("Mul", {dy, attains}), count}));
  return {};
}

// dy * exp(x - y); where y is infinite, eager's choice is 1 for the infinite elements.
Status reduce_log_sum_exp_gradient(RuleContext& ctx) {
  REKINDLE_ASSIGN_OR_RETURN(const Axes reduced, reduced_axes(ctx));
  const auto [y, dy] = kept(ctx, reduced);
  ctx.set_dx(0, ctx.op("Mul", {dy, ctx.op("Exp", {ctx.op("Sub", {ctx.x(), y})})}));
  return {};
}

// dy * x / y, and zero where the norm is zero.
Status reduce_l2_gradient(RuleContext& ctx) {
  REKINDLE_ASSIGN_OR_RETURN(const Axes reduced, reduced_axes(ctx));
  const auto [y, dy] = kept(ctx, reduced);
  Value* zero = ctx.scalar(0, ctx.x());
  Value* slope = ctx.op("Mul", {ctx.x(), ctx.op("Div", {dy, y})});
  ctx.set_dx(0, ctx.op("Where", {ctx.op("Equal", {y, zero}), zero, slope}));
  return {};
}

Status reduce_l1_gradient(RuleContext& ctx) {
  REKINDLE_ASSIGN_OR_RETURN(const Axes reduced, reduced_axes(ctx));
  ctx.set_dx(0, ctx.op("Mul", {kept(ctx, reduced).second, ctx.op("Sign", {ctx.x()})}));
  return {};
}

Status softmax_gradient(RuleContext& ctx) {
  const std::string op_type = ctx.node().op_type() + "Gradient";
  ctx.set_dx(0,
             ctx.rekindle_op(op_type, {ctx.dy(), ctx.y()}, {{"axis", ctx.node().int_attribute("axis", -1)}}));
  return {};
}

Status cum_sum_gradient(RuleContext& ctx) {
  ctx.set_dx(0, ctx.rekindle_op("CumSumGradient", {ctx.dy(), ctx.x(1)},
                                {{"exclusive", ctx.node().int_attribute("exclusive", 0)},
                                 {"reverse", ctx.node().int_attribute("reverse", 0)}}));
  return {};
}

REKINDLE_GRADIENT("", "ReduceSum", reduce_sum_gradient);
REKINDLE_GRADIENT("", "ReduceMean", reduce_mean_gradient);
REKINDLE_GRADIENT("", "ReduceMax", reduce_extremum_gradient);
REKINDLE_GRADIENT("", "ReduceMin", reduce_extremum_gradient);
REKINDLE_GRADIENT("", "ReduceL1", reduce_l1_gradient);
REKINDLE_GRADIENT("", "ReduceL2", reduce_l2_gradient);
REKINDLE_GRADIENT("", "ReduceLogSumExp", reduce_log_sum_exp_gradient);
REKINDLE_GRADIENT("", "Softmax", softmax_gradient);
REKINDLE_GRADIENT("", "LogSoftmax", softmax_gradient);
REKINDLE_GRADIENT("", "CumSum", cum_sum_gradient);

}  // namespace
}  // namespace rekindle::autodiff
