// Pointwise ops, with ONNX's (multidirectional) broadcasting.
#include <ATen/ops/abs.h>
#include <ATen/ops/add.h>
#include <ATen/ops/ceil.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/div.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/floor.h>
#include <ATen/ops/fmod.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/hardswish.h>
#include <ATen/ops/isinf.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/le.h>
#include <ATen/ops/log.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/logical_xor.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/round.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sign.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/tan.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/where.h>

#include <array>

#include "session/ops/unsigned.h"

namespace rekindle::session {
namespace {

using UnaryOut = at::Tensor& (*)(at::Tensor&, const at::Tensor&);
using BinaryOut = at::Tensor& (*)(at::Tensor&, const at::Tensor&, const at::Tensor&);

template <UnaryOut function>
Lowering unary(const LowerContext& context) {
  return computed(context.dtype(0), context.sizes(0),
                  [](const Args& args) { function(args.out(), args.in(0)); }, {0});
}

template <UnaryOut function>
Lowering unary_test(const LowerContext& context) {
  return computed(at::kBool, context.sizes(0), [](const Args& args) { function(args.out(), args.in(0)); });
}

Sizes broadcast_inputs(const LowerContext& context) {
  Sizes sizes = context.sizes(0);
  for (std::size_t i = 1; i < context.num_inputs(); ++i) sizes = broadcast_sizes(sizes, context.sizes(i));
  return sizes;
}

// Two operands, of which a known number stays on the host: kernels of accelerators take it as an argument,
// and would read one in memory as a tensor that is broadcast.
class Operands {
 public:
  explicit Operands(const LowerContext& context) {
    for (std::size_t i = 0; i < 2; ++i) {
      const bool is_number = !context.device().is_cpu() && context.is_constant(i) && context.rank(i) == 0;
      if (is_number && context.rank(1 - i) > 0) numbers_.at(i) = context.constant(i);
    }
  }
  const at::Tensor& get(const Args& args, std::size_t i) const {
    return numbers_[i].defined() ? numbers_[i] : args.in(i);
  }

 private:
  std::array<at::Tensor, 2> numbers_;
};

template <BinaryOut function>
Kernel of_operands(const LowerContext& context) {
  return
      [of = Operands(context)](const Args& args) { function(args.out(), of.get(args, 0), of.get(args, 1)); };
}

template <BinaryOut function>
Lowering binary(const LowerContext& context) {
  return computed(context.dtype(0), broadcast_inputs(context), of_operands<function>(context), {0, 1});
}

template <BinaryOut function>
Lowering comparison(const LowerContext& context) {
  return computed(at::kBool, broadcast_inputs(context), of_operands<function>(context));
}

at::Tensor& add(at::Tensor& out, const at::Tensor& a, const at::Tensor& b) { return at::add_out(out, a, b); }
at::Tensor& sub(at::Tensor& out, const at::Tensor& a, const at::Tensor& b) { return at::sub_out(out, a, b); }
at::Tensor& pow(at::Tensor& out, const at::Tensor& a, const at::Tensor& b) { return at::pow_out(out, a, b); }
at::Tensor& mul(at::Tensor& out, const at::Tensor& a, const at::Tensor& b) { return at::mul_out(out, a, b); }
at::Tensor& round(at::Tensor& out, const at::Tensor& a) { return at::round_out(out, a); }

Lowering lower_is_inf(const LowerContext& context) {
  const bool negative = context.int_attribute("detect_negative", 1) != 0,
             positive = context.int_attribute("detect_positive", 1) != 0;
  return computed(at::kBool, context.sizes(0), [negative, positive](const Args& args) {
    args.out().copy_(at::isinf(args.in(0)));
    if (!negative) args.out().logical_and_(args.in(0).gt(0));
    if (!positive) args.out().logical_and_(args.in(0).lt(0));
  });
}

// ONNX Div truncates integers; floating point divides.
Lowering lower_div(const LowerContext& context) {
  const bool integral = at::isIntegralType(context.dtype(0), /*includeBool=*/false);
  return computed(context.dtype(0), broadcast_inputs(context),
                  [integral, of = Operands(context)](const Args& args) {
                    if (integral) {
                      at::div_out(args.out(), of.get(args, 0), of.get(args, 1), "trunc");
                    } else {
                      at::div_out(args.out(), of.get(args, 0), of.get(args, 1));
                    }
                  },
                  {0, 1});
}

// The exponent may have another type; the result has the base's. A number
// known now takes ATen's fast scalar paths.
Lowering lower_pow(const LowerContext& context) {
  if (context.is_constant(1) && context.constant(1).numel() == 1 && context.rank(1) <= context.rank(0)) {
    const at::Scalar exponent = context.constant(1).item();
    if (at::isFloatingType(context.dtype(0)) || exponent.isIntegral(false)) {
      return computed(context.dtype(0), context.sizes(0),
                      [exponent](const Args& args) { at::pow_out(args.out(), args.in(0), exponent); }, {0});
    }
  }
  if (at::isIntegralType(context.dtype(0), false) && at::isFloatingType(context.dtype(1))) {
    return computed(context.dtype(0), broadcast_inputs(context), [](const Args& args) {
      args.out().copy_(at::pow(args.in(0).to(at::kDouble), args.in(1).to(at::kDouble)));
    });
  }
  return computed(
      context.dtype(0), broadcast_inputs(context),
      [](const Args& args) { pow(args.out(), args.in(0), args.in(1).to(args.out().scalar_type())); }, {0});
}

// fmod=1 has the dividend's sign (C), fmod=0 the divisor's (Python).
Lowering lower_mod(const LowerContext& context) {
  const bool c_like = context.int_attribute("fmod", 0) != 0;
  return computed(context.dtype(0), broadcast_inputs(context),
                  [c_like](const Args& args) {
                    if (c_like) {
                      at::fmod_out(args.out(), args.in(0), args.in(1));
                    } else {
                      at::remainder_out(args.out(), args.in(0), args.in(1));
                    }
                  },
                  {0, 1});
}

// Max, Min, Sum, Mean of any number of inputs: folded from the left.
template <BinaryOut function>
Lowering variadic(const LowerContext& context) {
  const std::size_t count = context.num_inputs();
  return computed(context.dtype(0), broadcast_inputs(context), [count](const Args& args) {
    if (count == 1) {
      args.out().copy_(args.in(0));
      return;
    }
    function(args.out(), args.in(0), args.in(1));
    for (std::size_t i = 2; i < count; ++i) function(args.out(), args.out(), args.in(i));
  });
}

Lowering lower_mean(const LowerContext& context) {
  Lowering lowering = variadic<add>(context);
  const auto count = static_cast<double>(context.num_inputs());
  lowering.kernel = [sum = std::move(lowering.kernel), count](const Args& args) {
    sum(args);
    args.out().div_(count);
  };
  return lowering;
}

Lowering lower_identity(const LowerContext& context) {
  return viewed(context, context.sizes(0),
                [](const at::Tensor& x) { return x.as_strided(x.sizes(), x.strides()); });
}

Lowering lower_where(const LowerContext& context) {
  return computed(context.dtype(1), broadcast_inputs(context),
                  [](const Args& args) { at::where_out(args.out(), args.in(0), args.in(1), args.in(2)); });
}

Lowering lower_clip(const LowerContext& context) {
  const bool low = context.has(1), high = context.has(2);
  return computed(context.dtype(0), context.sizes(0), [low, high](const Args& args) {
    const std::optional<at::Tensor> least = low ? std::optional(args.in(1)) : std::nullopt;
    const std::optional<at::Tensor> most = high ? std::optional(args.in(2)) : std::nullopt;
    if (low || high) {
      at::clamp_out(args.out(), args.in(0), least, most);
    } else {
      args.out().copy_(args.in(0));
    }
  });
}

}  // namespace

REKINDLE_OP("", "Abs", unary<at::abs_out>);
REKINDLE_OP("", "Ceil", unary<at::ceil_out>);
REKINDLE_OP("", "Cos", unary<at::cos_out>);
REKINDLE_OP("", "Erf", unary<at::erf_out>);
REKINDLE_OP("", "Exp", unary<at::exp_out>);
REKINDLE_OP("", "Floor", unary<at::floor_out>);
REKINDLE_OP("", "HardSwish", unary<at::hardswish_out>);
REKINDLE_OP("", "Log", unary<at::log_out>);
REKINDLE_OP("", "Neg", unary<at::neg_out>);
REKINDLE_OP("", "Reciprocal", unary<at::reciprocal_out>);
REKINDLE_OP("", "Relu", unary<at::relu_out>);
REKINDLE_OP("", "Round", unary<round>);
REKINDLE_OP("", "Sigmoid", unary<at::sigmoid_out>);
REKINDLE_OP("", "Sign", unary<at::sign_out>);
REKINDLE_OP("", "Sin", unary<at::sin_out>);
REKINDLE_OP("", "Sqrt", unary<at::sqrt_out>);
REKINDLE_OP("", "Tan", unary<at::tan_out>);
REKINDLE_OP("", "Tanh", unary<at::tanh_out>);
REKINDLE_OP("", "Not", unary<at::logical_not_out>);
REKINDLE_OP("", "IsNaN", unary_test<at::isnan_out>);
REKINDLE_OP("", "IsInf", lower_is_inf);
REKINDLE_OP("", "Add", with_unsigned<binary<add>>);
REKINDLE_OP("", "Sub", with_unsigned<binary<sub>>);
REKINDLE_OP("", "Mul", with_unsigned<binary<mul>>);
REKINDLE_OP("", "Div", (with_unsigned<lower_div, UnsignedUse::kNumbers>));
REKINDLE_OP("", "Pow", (with_unsigned<lower_pow, UnsignedUse::kNumbers>));
REKINDLE_OP("", "Mod", (with_unsigned<lower_mod, UnsignedUse::kNumbers>));
REKINDLE_OP("", "And", comparison<at::logical_and_out>);
REKINDLE_OP("", "Or", comparison<at::logical_or_out>);
REKINDLE_OP("", "Xor", comparison<at::logical_xor_out>);
REKINDLE_OP("", "Equal", (with_unsigned<comparison<at::eq_out>, UnsignedUse::kOrder>));
REKINDLE_OP("", "Greater", (with_unsigned<comparison<at::gt_out>, UnsignedUse::kOrder>));
REKINDLE_OP("", "GreaterOrEqual", (with_unsigned<comparison<at::ge_out>, UnsignedUse::kOrder>));
REKINDLE_OP("", "Less", (with_unsigned<comparison<at::lt_out>, UnsignedUse::kOrder>));
REKINDLE_OP("", "LessOrEqual", (with_unsigned<comparison<at::le_out>, UnsignedUse::kOrder>));
REKINDLE_OP("", "Max", (with_unsigned<variadic<at::maximum_out>, UnsignedUse::kOrder>));
REKINDLE_OP("", "Min", (with_unsigned<variadic<at::minimum_out>, UnsignedUse::kOrder>));
REKINDLE_OP("", "Sum", with_unsigned<variadic<add>>);
REKINDLE_OP("", "Mean", lower_mean);
REKINDLE_OP("", "Identity", lower_identity);
REKINDLE_OP("rekindle", "StopGradient", lower_identity);
REKINDLE_OP("", "Where", lower_where);
REKINDLE_OP("", "Clip", (with_unsigned<lower_clip, UnsignedUse::kOrder>));

}  // namespace rekindle::session
