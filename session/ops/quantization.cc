// Linear quantization, and products of quantized matrices (integers in
// float64: exact for the sums that int32 holds).
#include "session/ops/quantization.h"

#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros_like.h>

#include "session/lower/tensor_types.h"

namespace rekindle::session {
namespace {

// A scale or zero point brought to x's shape: one for all, one per slice
// along `axis`, or one per block along it.
at::Tensor spread(const at::Tensor& parameter, const at::Tensor& x, std::int64_t axis, std::int64_t block) {
  if (parameter.numel() == 1 && parameter.dim() <= 1) return parameter.reshape({});
  if (parameter.dim() == 1 && block == 0) return along_axis(parameter, x.dim(), axis);
  TORCH_CHECK(parameter.dim() == x.dim() && block > 0, "scale or zero point ", parameter.sizes(),
              " does not fit ", x.sizes());
  return parameter.repeat_interleave(block, axis).narrow(axis, 0, x.size(axis));
}

struct Grid {
  std::int64_t axis, block;
};

Grid grid_of(const LowerContext& context) {
  const std::int64_t rank = context.rank(0), axis = context.int_attribute("axis", 1);
  return {axis < 0 ? axis + rank : std::min(axis, std::max<std::int64_t>(rank - 1, 0)),
          context.int_attribute("block_size", 0)};
}

// Inputs: x, scale, zero point?. The type of the result is the zero point's, output_dtype or uint8.
Lowering lower_quantize_linear(const LowerContext& context) {
  const auto wanted = context.int_attribute("output_dtype", 0);
  const at::ScalarType type = context.has(2) ? context.dtype(2)
                              : wanted != 0  ? scalar_type_of(static_cast<graph::DType>(wanted))
                                             : at::kByte;
  const auto precision = context.int_attribute("precision", 0);
  const at::ScalarType divide = precision != 0 ? scalar_type_of(static_cast<graph::DType>(precision))
                                : at::isFloatingType(context.dtype(1)) ? context.dtype(1)
                                                                       : at::kFloat;
  const bool saturate = context.int_attribute("saturate", 1) != 0, zero = context.has(2);
  return computed(
      type, context.sizes(0), [type, divide, saturate, zero, grid = grid_of(context)](const Args& args) {
        const at::Tensor& x = args.in(0);
        const at::Tensor scale = spread(args.in(1), x, grid.axis, grid.block).to(divide);
        const at::Tensor scaled = x.to(divide).div(scale);
        if (!is_float8(type)) {
          quantize_into(args.out(), scaled,
                        zero ? spread(args.in(2), x, grid.axis, grid.block) : at::Tensor());
          return;
        }
        const double most = type == at::kFloat8_e4m3fn ? 448 : type == at::kFloat8_e4m3fnuz ? 240 : 57344;
        args.out().copy_(saturate ? scaled.to(at::kFloat).clamp(-most, most) : scaled.to(at::kFloat));
      });
}

// Inputs: x, scale, zero point?.
Lowering lower_dequantize_linear(const LowerContext& context) {
  const auto wanted = context.int_attribute("output_dtype", 0);
  const at::ScalarType type =
      wanted == 0 ? context.dtype(1) : scalar_type_of(static_cast<graph::DType>(wanted));
  return computed(type, context.sizes(0), [zero = context.has(2), grid = grid_of(context)](const Args& args) {
    const at::Tensor& x = args.in(0);
    at::Tensor wide = is_float8(x.scalar_type()) ? x.to(at::kFloat) : x.to(at::kLong);
    if (zero && !is_float8(x.scalar_type()))
      wide = wide.sub(spread(args.in(2).to(at::kLong), x, grid.axis, grid.block));
    args.out().copy_(wide.to(at::kFloat).mul(spread(args.in(1).to(at::kFloat), x, grid.axis, grid.block)));
  });
}

// Outputs: y in uint8, its scale and zero point, from the range of x and 0.
Lowering lower_dynamic_quantize_linear(const LowerContext& context) {
  Lowering lowering;
  lowering.outputs = {{at::kByte, context.sizes(0), {}}, {at::kFloat, {}, {}}, {at::kByte, {}, {}}};
  lowering.kernel = [](const Args& args) {
    const at::Tensor least = args.in(0).min().clamp_max(0), most = args.in(0).max().clamp_min(0);
    const at::Tensor scale = most.sub(least).div(255);
    args.out(1).copy_(scale);
    args.out(2).copy_(least.div(scale).mul(-1).round().nan_to_num(0, 0, 0).clamp(0, 255));
    quantize_into(args.out(0), args.in(0).div(scale).nan_to_num(0, 0, 0), args.out(2));
  };
  return lowering;
}

Sizes product_sizes(const LowerContext& context, std::size_t b) {
  return at::matmul(context.meta(0).to(at::kFloat), context.meta(b).to(at::kFloat)).sizes().vec();
}

// A scale or zero point: one for all, one per row of a or column of b, or already shaped to fit.
at::Tensor of_rows(const at::Tensor& parameter) {
  return parameter.dim() == 1 && parameter.numel() > 1 ? parameter.unsqueeze(1) : parameter;
}

at::Tensor centered(const at::Tensor& x, const at::Tensor& zero_point) {
  const at::Tensor wide = x.to(at::kDouble);
  return zero_point.defined() ? wide.sub(zero_point.to(at::kDouble)) : wide;
}

// Inputs: a, b, zero point of a? (per row), zero point of b? (per column).
Lowering lower_matmul_integer(const LowerContext& context) {
  return computed(
      at::kInt, product_sizes(context, 1),
      [a_zero = context.has(2), b_zero = context.has(3)](const Args& args) {
        args.out().copy_(at::matmul(centered(args.in(0), a_zero ? of_rows(args.in(2)) : at::Tensor()),
                                    centered(args.in(1), b_zero ? args.in(3) : at::Tensor())));
      });
}

// Inputs: a, its scale and zero point, b, its scale and zero point, scale and zero point of y.
Lowering lower_qlinear_matmul(const LowerContext& context) {
  return computed(context.dtype(7), product_sizes(context, 3), [](const Args& args) {
    const at::Tensor sums =
        at::matmul(centered(args.in(0), of_rows(args.in(2))), centered(args.in(3), args.in(5)));
    const at::Tensor scale = of_rows(args.in(1))
                                 .to(at::kDouble)
                                 .mul(args.in(4).to(at::kDouble))
                                 .div(of_rows(args.in(6)).to(at::kDouble));
    quantize_into(args.out(), sums.mul(scale), of_rows(args.in(7)));
  });
}

}  // namespace

void quantize_into(at::Tensor out, const at::Tensor& scaled, const at::Tensor& zero_point) {
  const bool is_signed =
      out.scalar_type() == at::kChar || out.scalar_type() == at::kShort || out.scalar_type() == at::kInt;
  const auto bits = static_cast<std::int64_t>(8 * c10::elementSize(out.scalar_type()));
  const std::int64_t most = (std::int64_t{1} << (is_signed ? bits - 1 : bits)) - 1,
                     least = is_signed ? -most - 1 : 0;
  at::Tensor rounded = scaled.to(at::kDouble).round();
  if (zero_point.defined()) rounded = rounded.add(zero_point.to(at::kDouble));
  out.copy_(rounded.clamp(least, most));
}

REKINDLE_OP("", "DequantizeLinear", lower_dequantize_linear);
REKINDLE_OP("", "DynamicQuantizeLinear", lower_dynamic_quantize_linear);
REKINDLE_OP("", "MatMulInteger", lower_matmul_integer);
REKINDLE_OP("", "QLinearMatMul", lower_qlinear_matmul);
REKINDLE_OP("", "QuantizeLinear", lower_quantize_linear);

}  // namespace rekindle::session
