// Gradients of arithmetic and of elementwise functions. At kinks they follow PyTorch's eager mode.
#include <numbers>

#include "src/autodiff/rule.h"

namespace rekindle::autodiff {
namespace {

Value* square(RuleContext& ctx, Value* x) { return ctx.op("Mul", {x, x}); }

Status add_gradient(RuleContext& ctx) {
  for (std::size_t i = 0; i < ctx.node().inputs().size(); ++i) {
    if (ctx.needs(i)) ctx.set_unreduced_dx(i, ctx.dy());
  }
  return {};
}

Status mean_gradient(RuleContext& ctx) {
  const auto count = static_cast<double>(ctx.node().inputs().size());
  Value* share = count == 1 ? ctx.dy() : ctx.op("Div", {ctx.dy(), ctx.scalar(count, ctx.dy())});
  for (std::size_t i = 0; i < ctx.node().inputs().size(); ++i) {
    if (ctx.needs(i)) ctx.set_unreduced_dx(i, share);
  }
  return {};
}

Status sub_gradient(RuleContext& ctx) {
  if (ctx.needs(0)) ctx.set_unreduced_dx(0, ctx.dy());
  if (ctx.needs(1)) ctx.set_unreduced_dx(1, ctx.op("Neg", {ctx.dy()}));
  return {};
}

Status mul_gradient(RuleContext& ctx) {
  if (ctx.needs(0)) ctx.set_unreduced_dx(0, ctx.op("Mul", {ctx.dy(), ctx.x(1)}));
  if (ctx.needs(1)) ctx.set_unreduced_dx(1, ctx.op("Mul", {ctx.dy(), ctx.x(0)}));
  return {};
}

Status div_gradient(RuleContext& ctx) {
  if (ctx.needs(0)) ctx.set_unreduced_dx(0, ctx.op("Div", {ctx.dy(), ctx.x(1)}));
  if (!ctx.needs(1)) return {};
  Value* slope = ctx.op("Div", {ctx.y(), ctx.x(1)});  // minus dy/dx1
  ctx.set_unreduced_dx(1, ctx.op("Neg", {ctx.op("Mul", {ctx.dy(), slope})}));
  return {};
}

// The exponent when it is one known number.
std::optional<double> known_exponent(const RuleContext& ctx) {
  const graph::ConstantPtr exponent = graph::constant_of(ctx.x(1));
  if (exponent == nullptr || exponent->numel() != 1) return std::nullopt;
  return graph::scalar_value(*exponent);
}

Value* pow_slope(RuleContext& ctx, double exponent) {
  Value* x = ctx.x();
  if (exponent == 2) return ctx.op("Mul", {ctx.scalar(2, x), x});
  return ctx.op("Mul", {ctx.scalar(exponent, x), ctx.op("Pow", {x, ctx.scalar(exponent - 1, x)})});
}

// dy * e * x^(e - 1), and zero where e is zero, even at x = 0.
Value* pow_base_gradient(RuleContext& ctx) {
  Value *x = ctx.x(), *dy = ctx.dy();
  if (const std::optional<double> exponent = known_exponent(ctx)) {
    if (*exponent == 0) return ctx.rekindle_op("ZerosLike", {dy});
    return *exponent == 1 ? dy : ctx.op("Mul", {dy, pow_slope(ctx, *exponent)});
  }
  const bool same_dtype =
      x->type().dtype == ctx.x(1)->type().dtype && x->type().dtype != graph::DType::kUndefined;
  Value* exponent = same_dtype ? ctx.x(1) : ctx.op("CastLike", {ctx.x(1), x});
  Value* power = ctx.op("Pow", {x, ctx.op("Sub", {exponent, ctx.scalar(1, x)})});
  Value* dx = ctx.op("Mul", {dy, ctx.op("Mul", {exponent, power})});
  Value* zero = ctx.scalar(0, x);
  return ctx.op("Where", {ctx.op("Equal", {exponent, zero}), zero, dx});
}

// dy * y * log(x), and zero where x is zero and the exponent is not negative.
Value* pow_exponent_gradient(RuleContext& ctx) {
  Value *x = ctx.x(0), *exponent = ctx.x(1);
  Value* flat = ctx.op("And", {ctx.op("Equal", {x, ctx.scalar(0, x)}),
                               ctx.op("GreaterOrEqual", {exponent, ctx.scalar(0, exponent)})});
  Value* slope = ctx.op("Mul", {ctx.y(), ctx.op("Log", {x})});
  Value* gradient = ctx.op("Mul", {ctx.dy(), ctx.op("Where", {flat, ctx.scalar(0, ctx.dy()), slope})});
  const graph::DType want = exponent->type().dtype;
  return want != graph::DType::kUndefined && want == x->type().dtype
             ? gradient
             : ctx.op("CastLike", {gradient, exponent});
}

Status pow_gradient(RuleContext& ctx) {
  if (ctx.needs(0)) ctx.set_unreduced_dx(0, pow_base_gradient(ctx));
  if (ctx.needs(1)) ctx.set_unreduced_dx(1, pow_exponent_gradient(ctx));
  return {};
}

Status neg_gradient(RuleContext& ctx) {
  ctx.set_dx(0, ctx.op("Neg", {ctx.dy()}));
  return {};
}

Status identity_gradient(RuleContext& ctx) {
  ctx.set_dx(0, ctx.dy());
  return {};
}

Status straight_through_gradient(RuleContext& ctx) {
  if (ctx.needs(1)) ctx.set_dx(1, ctx.dy());
  return {};
}

// Steps (Floor, Sign, ...): eager gives zeros, not None.
Status step_gradient(RuleContext& ctx) {
  ctx.set_dx(0, ctx.rekindle_op("ZerosLike", {ctx.dy()}));
  return {};
}

Status sqrt_gradient(RuleContext& ctx) {
  ctx.set_dx(0, ctx.op("Div", {ctx.dy(), ctx.op("Mul", {ctx.scalar(2, ctx.x()), ctx.y()})}));
  return {};
}

Status exp_gradient(RuleContext& ctx) {
  ctx.set_dx(0, ctx.op("Mul", {ctx.dy(), ctx.y()}));
  return {};
}

Status log_gradient(RuleContext& ctx) {
  ctx.set_dx(0, ctx.op("Div", {ctx.dy(), ctx.x()}));
  return {};
}

Status erf_gradient(RuleContext& ctx) {
  Value* bell = ctx.op("Exp", {ctx.op("Neg", {square(ctx, ctx.x())})});
  Value* factor = ctx.scalar(2 * std::numbers::inv_sqrtpi, ctx.x());
  ctx.set_dx(0, ctx.op("Mul", {ctx.op("Mul", {factor, bell}), ctx.dy()}));
  return {};
}

Status abs_gradient(RuleContext& ctx) {
  ctx.set_dx(0, ctx.op("Mul", {ctx.dy(), ctx.op("Sign", {ctx.x()})}));
  return {};
}

Status sin_gradient(RuleContext& ctx) {
  ctx.set_dx(0, ctx.op("Mul", {ctx.dy(), ctx.op("Cos", {ctx.x()})}));
  return {};
}

Status cos_gradient(RuleContext& ctx) {
  ctx.set_dx(0, ctx.op("Mul", {ctx.dy(), ctx.op("Neg", {ctx.op("Sin", {ctx.x()})})}));
  return {};
}

// 1 + tan²
Status tan_gradient(RuleContext& ctx) {
  Value* slope = ctx.op("Add", {square(ctx, ctx.y()), ctx.scalar(1, ctx.x())});
  ctx.set_dx(0, ctx.op("Mul", {ctx.dy(), slope}));
  return {};
}

// x0 - q * x1 with the whole number q = (x0 - y) / x1.
Status mod_gradient(RuleContext& ctx) {
  if (ctx.needs(0)) ctx.set_unreduced_dx(0, ctx.dy());
  if (!ctx.needs(1)) return {};
  Value* quotient = ctx.op("Round", {ctx.op("Div", {ctx.op("Sub", {ctx.x(0), ctx.y()}), ctx.x(1)})});
  ctx.set_unreduced_dx(1, ctx.op("Neg", {ctx.op("Mul", {ctx.dy(), quotient})}));
  return {};
}

Status reciprocal_gradient(RuleContext& ctx) {
  ctx.set_dx(0, ctx.op("Mul", {ctx.op("Neg", {ctx.dy()}), square(ctx, ctx.y())}));
  return {};
}

Status where_gradient(RuleContext& ctx) {
  Value* zero = ctx.scalar(0, ctx.dy());
  if (ctx.needs(1)) ctx.set_unreduced_dx(1, ctx.op("Where", {ctx.x(0), ctx.dy(), zero}));
  if (ctx.needs(2)) ctx.set_unreduced_dx(2, ctx.op("Where", {ctx.x(0), zero, ctx.dy()}));
  return {};
}

// Back to the dtype of the input.
Status cast_gradient(RuleContext& ctx) {
  const graph::DType dtype = ctx.x()->type().dtype;
  if (dtype == graph::DType::kUndefined) {
    ctx.set_dx(0, ctx.op("CastLike", {ctx.dy(), ctx.x()}));
  } else {
    ctx.set_dx(0, ctx.op("Cast", {ctx.dy()}, {{"to", static_cast<std::int64_t>(dtype)}}));
  }
  return {};
}

// Max with `loser` "Less", Min with "Greater": all to the winner, half to each at ties.
Status extremum_gradient(RuleContext& ctx, const char* loser) {
  if (ctx.node().inputs().size() == 1) return identity_gradient(ctx);
  if (ctx.node().inputs().size() > 2) return ctx.unsupported("it has more than two inputs");
  Value* zero = ctx.scalar(0, ctx.dy());
  Value* half = ctx.op("Div", {ctx.dy(), ctx.scalar(2, ctx.dy())});
  Value* shared = ctx.op("Where", {ctx.op("Equal", {ctx.x(0), ctx.x(1)}), half, ctx.dy()});
  for (std::size_t i : {0, 1}) {
    if (!ctx.needs(i)) continue;
    Value* loses = ctx.op(loser, {ctx.x(i), ctx.x(1 - i)});
    ctx.set_unreduced_dx(i, ctx.op("Where", {loses, zero, shared}));
  }
  return {};
}

Status max_gradient(RuleContext& ctx) { return extremum_gradient(ctx, "Less"); }
Status min_gradient(RuleContext& ctx) { return extremum_gradient(ctx, "Greater"); }

// The bounds get what the data does not; where the lower one is above the upper one, all goes to the upper.
void clip_bound_gradients(RuleContext& ctx) {
  Value *x = ctx.x(0), *low = ctx.x(1), *high = ctx.x(2), *zero = ctx.scalar(0, ctx.dy());
  if (ctx.needs(1)) {
    Value* at_low = ctx.op("Less", {x, low});
    if (high != nullptr) at_low = ctx.op("And", {at_low, ctx.op("Less", {low, high})});
    ctx.set_unreduced_dx(1, ctx.op("Where", {at_low, ctx.dy(), zero}));
  }
  if (ctx.needs(2)) {
    Value* at_high = ctx.op("Greater", {x, high});
    if (low != nullptr) at_high = ctx.op("Or", {at_high, ctx.op("Less", {high, low})});
    ctx.set_unreduced_dx(2, ctx.op("Where", {at_high, ctx.dy(), zero}));
  }
}

Status clip_gradient(RuleContext& ctx) {
  Value *x = ctx.x(0), *low = ctx.x(1), *high = ctx.x(2);
  if (ctx.needs(0)) {
    Value* inside = nullptr;
    if (low != nullptr) inside = ctx.op("GreaterOrEqual", {x, low});
    if (high != nullptr) {
      Value* below = ctx.op("LessOrEqual", {x, high});
      inside = inside == nullptr ? below : ctx.op("And", {inside, below});
    }
    ctx.set_dx(0,
               inside == nullptr ? ctx.dy() : ctx.op("Where", {inside, ctx.dy(), ctx.scalar(0, ctx.dy())}));
  }
  clip_bound_gradients(ctx);
  return {};
}

REKINDLE_GRADIENT("", "Add", add_gradient);
REKINDLE_GRADIENT("", "Sum", add_gradient);
REKINDLE_GRADIENT("", "Mean", mean_gradient);
REKINDLE_GRADIENT("", "Sub", sub_gradient);
REKINDLE_GRADIENT("", "Mul", mul_gradient);
REKINDLE_GRADIENT("", "Div", div_gradient);
REKINDLE_GRADIENT("", "Pow", pow_gradient);
REKINDLE_GRADIENT("", "Neg", neg_gradient);
REKINDLE_GRADIENT("", "Identity", identity_gradient);
REKINDLE_GRADIENT("rekindle", "Copy", identity_gradient);
REKINDLE_GRADIENT("rekindle", "StraightThrough", straight_through_gradient);
REKINDLE_GRADIENT("", "Floor", step_gradient);
REKINDLE_GRADIENT("", "Ceil", step_gradient);
REKINDLE_GRADIENT("", "Round", step_gradient);
REKINDLE_GRADIENT("", "Sign", step_gradient);
REKINDLE_GRADIENT("", "Sqrt", sqrt_gradient);
REKINDLE_GRADIENT("", "Exp", exp_gradient);
REKINDLE_GRADIENT("", "Log", log_gradient);
REKINDLE_GRADIENT("", "Erf", erf_gradient);
REKINDLE_GRADIENT("", "Abs", abs_gradient);
REKINDLE_GRADIENT("", "Sin", sin_gradient);
REKINDLE_GRADIENT("", "Cos", cos_gradient);
REKINDLE_GRADIENT("", "Tan", tan_gradient);
REKINDLE_GRADIENT("", "Mod", mod_gradient);
REKINDLE_GRADIENT("", "Reciprocal", reciprocal_gradient);
REKINDLE_GRADIENT("", "Where", where_gradient);
REKINDLE_GRADIENT("", "Cast", cast_gradient);
REKINDLE_GRADIENT("", "CastLike", cast_gradient);
REKINDLE_GRADIENT("", "Max", max_gradient);
REKINDLE_GRADIENT("", "Min", min_gradient);
REKINDLE_GRADIENT("", "Clip", clip_gradient);

}  // namespace
}  // namespace rekindle::autodiff
