// Gradients of activation functions. At kinks they follow PyTorch's eager mode.
#include "src/autodiff/rule.h"

namespace rekindle::autodiff {
namespace {

Status relu_gradient(RuleContext& ctx) {
  ctx.set_dx(0, ctx.rekindle_op("ReluGradient", {ctx.dy(), ctx.y()}));
  return {};
}

Status tanh_gradient(RuleContext& ctx) {
  ctx.set_dx(0, ctx.rekindle_op("TanhGradient", {ctx.dy(), ctx.y()}));
  return {};
}

Status sigmoid_gradient(RuleContext& ctx) {
  ctx.set_dx(0, ctx.rekindle_op("SigmoidGradient", {ctx.dy(), ctx.y()}));
  return {};
}

Status gelu_gradient(RuleContext& ctx) {
  ctx.set_dx(0, ctx.rekindle_op("GeluGradient", {ctx.dy(), ctx.x()},
                                {{"approximate", ctx.node().string_attribute("approximate", "none")}}));
  return {};
}

Status silu_gradient(RuleContext& ctx) {
  ctx.set_dx(0, ctx.rekindle_op("SiluGradient", {ctx.dy(), ctx.x()}));
  return {};
}

Status leaky_relu_gradient(RuleContext& ctx) {
  const double alpha = ctx.node().float_attribute("alpha", 0.01);
  // With a slope that is not negative the output is positive where the input is.
  Value* sign = alpha >= 0 ? ctx.y() : ctx.x();
  Value* positive = ctx.op("Greater", {sign, ctx.scalar(0, ctx.x())});
  Value* slope = ctx.op("Mul", {ctx.dy(), ctx.scalar(alpha, ctx.x())});
  ctx.set_dx(0, ctx.op("Where", {positive, ctx.dy(), slope}));
  return {};
}

// alpha * (exp(x) - 1) up to zero, x above.
Status elu_gradient(RuleContext& ctx) {
  Value *x = ctx.x(), *dy = ctx.dy();
  Value* slope = ctx.op("Mul", {ctx.scalar(ctx.node().float_attribute("alpha", 1), x), ctx.op("Exp", {x})});
  Value* positive = ctx.op("Greater", {x, ctx.scalar(0, x)});
  ctx.set_dx(0, ctx.op("Where", {positive, dy, ctx.op("Mul", {dy, slope})}));
  return {};
}

// clip(alpha * x + beta, 0, 1): flat at both ends, the ends included.
Status hard_sigmoid_gradient(RuleContext& ctx) {
  Value *x = ctx.x(), *dy = ctx.dy();
  Value* alpha = ctx.scalar(ctx.node().float_attribute("alpha", 0.2), x);
  Value* line =
      ctx.op("Add", {ctx.op("Mul", {alpha, x}), ctx.scalar(ctx.node().float_attribute("beta", 0.5), x)});
  Value* rising =
      ctx.op("And", {ctx.op("Greater", {line, ctx.scalar(0, x)}), ctx.op("Less", {line, ctx.scalar(1, x)})});
  ctx.set_dx(0, ctx.op("Where", {rising, ctx.op("Mul", {dy, alpha}), ctx.scalar(0, x)}));
  return {};
}

Status softplus_gradient(RuleContext& ctx) {
  ctx.set_dx(0, ctx.op("Mul", {ctx.dy(), ctx.op("Sigmoid", {ctx.x()})}));
  return {};
}

// x * clip(x / 6 + 1 / 2, 0, 1): its slope is x / 3 + 1 / 2 between -3 and 3.
Status hard_swish_gradient(RuleContext& ctx) {
  Value *x = ctx.x(), *dy = ctx.dy();
  Value* slope = ctx.op("Add", {ctx.op("Div", {x, ctx.scalar(3, x)}), ctx.scalar(0.5, x)});
  Value* rising = ctx.op("Where", {ctx.op("Less", {x, ctx.scalar(3, x)}), ctx.op("Mul", {dy, slope}), dy});
  Value* flat = ctx.op("LessOrEqual", {x, ctx.scalar(-3, x)});
  ctx.set_dx(0, ctx.op("Where", {flat, ctx.scalar(0, x), rising}));
  return {};
}

REKINDLE_GRADIENT("", "Relu", relu_gradient);
REKINDLE_GRADIENT("", "Tanh", tanh_gradient);
REKINDLE_GRADIENT("", "Sigmoid", sigmoid_gradient);
REKINDLE_GRADIENT("", "Gelu", gelu_gradient);
REKINDLE_GRADIENT("rekindle", "Silu", silu_gradient);
REKINDLE_GRADIENT("", "LeakyRelu", leaky_relu_gradient);
REKINDLE_GRADIENT("", "Elu", elu_gradient);
REKINDLE_GRADIENT("", "HardSigmoid", hard_sigmoid_gradient);
REKINDLE_GRADIENT("", "Softplus", softplus_gradient);
REKINDLE_GRADIENT("", "HardSwish", hard_swish_gradient);

}  // namespace
}  // namespace rekindle::autodiff
