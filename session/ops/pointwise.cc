// Pointwise ops of models that come as ONNX: one output like input 0, or like
// the inputs broadcast. No gradient rules.
#include <ATen/ops/celu.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/mish.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <limits>

#include "session/lower/tensor_types.h"
#include "session/ops/unsigned.h"

namespace rekindle::session {
namespace {

template <at::Tensor (at::Tensor::*method)() const>
Lowering unary(const LowerContext& context) {
  return computed(context.dtype(0), context.sizes(0),
                  [](const Args& args) { args.out().copy_((args.in(0).*method)()); });
}

template <typename Compute>
Lowering pointwise(const LowerContext& context, Compute compute) {
  return computed(context.dtype(0), context.sizes(0),
                  [compute](const Args& args) { args.out().copy_(compute(args.in(0))); });
}

Lowering lower_celu(const LowerContext& context) {
  return pointwise(context, [alpha = context.float_attribute("alpha", 1)](const at::Tensor& x) {
    return at::celu(x, alpha);
  });
}

Lowering lower_selu(const LowerContext& context) {
  const double alpha = context.float_attribute("alpha", 1.67326319217681884765625);
  const double gamma = context.float_attribute("gamma", 1.05070102214813232421875);
  return pointwise(context, [alpha, gamma](const at::Tensor& x) { return at::elu(x, alpha, gamma); });
}

Lowering lower_mish(const LowerContext& context) {
  return pointwise(context, [](const at::Tensor& x) { return at::mish(x); });
}

Lowering lower_shrink(const LowerContext& context) {
  const double lambda = context.float_attribute("lambd", 0.5), bias = context.float_attribute("bias", 0);
  return pointwise(context, [lambda, bias](const at::Tensor& x) {
    const at::Tensor zero = at::zeros_like(x);
    return at::where(x.lt(-lambda), x.add(bias), at::where(x.gt(lambda), x.sub(bias), zero));
  });
}

Lowering lower_softsign(const LowerContext& context) {
  return pointwise(context, [](const at::Tensor& x) { return x.div(x.abs().add(1)); });
}

Lowering lower_swish(const LowerContext& context) {
  return pointwise(context, [alpha = context.float_attribute("alpha", 1)](const at::Tensor& x) {
    return x.mul(x.mul(alpha).sigmoid());
  });
}

Lowering lower_thresholded_relu(const LowerContext& context) {
  return pointwise(context, [alpha = context.float_attribute("alpha", 1)](const at::Tensor& x) {
    return at::where(x.gt(alpha), x, at::zeros_like(x));
  });
}

Lowering lower_hardmax(const LowerContext& context) {
  const std::int64_t axis = context.axis(context.int_attribute("axis", -1), context.rank(0));
  return pointwise(context, [axis](const at::Tensor& x) {
    return at::zeros_like(x).scatter_(axis, x.argmax(axis, /*keepdim=*/true), 1);
  });
}

Lowering lower_prelu(const LowerContext& context) {
  return computed(context.dtype(0), context.sizes(0), [](const Args& args) {
    args.out().copy_(at::where(args.in(0).lt(0), args.in(0).mul(args.in(1)), args.in(0)));
  });
}

Lowering lower_swiglu(const LowerContext& context) {
  const double alpha = context.float_attribute("alpha", 1);
  TORCH_CHECK(context.sizes(0) == context.sizes(1), "SwiGLU of ", context.meta(0).sizes(), " and ",
              context.meta(1).sizes());
  return functional(context, [alpha](const Tensors& in) -> Tensors {
    return {in[0].mul(in[0].mul(alpha).sigmoid()).mul(in[1])};
  });
}

using Binary = at::Tensor (at::Tensor::*)(const at::Tensor&) const;

template <Binary method>
Lowering bitwise(const LowerContext& context) {
  return computed(context.dtype(0), broadcast_sizes(context.sizes(0), context.sizes(1)),
                  [](const Args& args) { args.out().copy_((args.in(0).*method)(args.in(1))); });
}

// What is shifted out is lost; a shift by no number of bits of the type leaves what the sign extends to.
Lowering lower_bit_shift(const LowerContext& context) {
  const at::ScalarType type = context.dtype(0);
  const std::string direction = context.string_attribute("direction", "");
  TORCH_CHECK(direction == "LEFT" || direction == "RIGHT", "BitShift in direction '", direction, "'");
  const bool left = direction == "LEFT";
  const auto bits = static_cast<std::int64_t>(8 * c10::elementSize(type));
  return computed(
      type, broadcast_sizes(context.sizes(0), context.sizes(1)), [type, left, bits](const Args& args) {
        const at::Tensor x = widened(args.in(0)), shift = widened(args.in(1));
        const at::Tensor inside = shift.ge(0).logical_and(shift.lt(bits));
        const at::Tensor by = at::where(inside, shift, at::zeros_like(shift));
        at::Tensor shifted = left ? x.bitwise_left_shift(by) : x.bitwise_right_shift(by);
        at::Tensor rest = at::zeros_like(shifted);
        if (!left && type == at::kUInt64) {
          // int64's shift copied the top bit into those vacated.
          const at::Tensor ones =
              at::zeros_like(by).sub(1).bitwise_left_shift(by.mul(-1).add(64).clamp_max(63)).bitwise_not();
          shifted = at::where(by.gt(0), shifted.bitwise_and(ones), shifted);
        } else if (!left) {
          rest = at::where(x.lt(0), rest.sub(1), rest);
        }
        narrow_into(args.out(), at::where(inside, shifted, rest));
      });
}

Lowering lower_bit_cast(const LowerContext& context) {
  const at::ScalarType type = scalar_type_of(static_cast<graph::DType>(context.int_attribute("to", 0)));
  TORCH_CHECK(c10::elementSize(type) == c10::elementSize(context.dtype(0)), "BitCast of ", context.dtype(0),
              " to ", type, ", which has another size");
  return computed(type, context.sizes(0), [](const Args& args) {
    args.out().copy_(args.in(0).contiguous().view(args.out().scalar_type()));
  });
}

}  // namespace

REKINDLE_OP("", "Acos", unary<&at::Tensor::acos>);
REKINDLE_OP("", "Acosh", unary<&at::Tensor::acosh>);
REKINDLE_OP("", "Asin", unary<&at::Tensor::asin>);
REKINDLE_OP("", "Asinh", unary<&at::Tensor::asinh>);
REKINDLE_OP("", "Atan", unary<&at::Tensor::atan>);
REKINDLE_OP("", "Atanh", unary<&at::Tensor::atanh>);
REKINDLE_OP("", "BitCast", lower_bit_cast);
REKINDLE_OP("", "BitShift", lower_bit_shift);
REKINDLE_OP("", "BitwiseAnd", with_unsigned<bitwise<&at::Tensor::bitwise_and>>);
REKINDLE_OP("", "BitwiseNot", with_unsigned<unary<&at::Tensor::bitwise_not>>);
REKINDLE_OP("", "BitwiseOr", with_unsigned<bitwise<&at::Tensor::bitwise_or>>);
REKINDLE_OP("", "BitwiseXor", with_unsigned<bitwise<&at::Tensor::bitwise_xor>>);
REKINDLE_OP("", "Celu", lower_celu);
REKINDLE_OP("", "Cosh", unary<&at::Tensor::cosh>);
REKINDLE_OP("", "Hardmax", lower_hardmax);
REKINDLE_OP("", "Mish", lower_mish);
REKINDLE_OP("", "PRelu", (with_unsigned<lower_prelu, UnsignedUse::kNumbers>));
REKINDLE_OP("", "Selu", lower_selu);
REKINDLE_OP("", "Shrink", lower_shrink);
REKINDLE_OP("", "Sinh", unary<&at::Tensor::sinh>);
REKINDLE_OP("", "Softsign", lower_softsign);
REKINDLE_OP("", "SwiGLU", lower_swiglu);
REKINDLE_OP("", "Swish", lower_swish);
REKINDLE_OP("", "ThresholdedRelu", lower_thresholded_relu);

}  // namespace rekindle::session
