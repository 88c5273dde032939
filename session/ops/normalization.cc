// LayerNormalization and its gradient.
#include "kernels/layer_norm.h"

#include "session/op.h"

namespace rekindle::session {
namespace {

at::ScalarType accumulate_type(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
}

// Outputs: y, mean and inverse standard deviation, the last two with ones along the normalized dimensions.
Lowering lower_layer_normalization(const LowerContext& context) {
  const Sizes sizes = context.sizes(0);
  const auto axis = static_cast<std::size_t>(context.axis(context.int_attribute("axis", -1), context.rank(0)));
  const Sizes normalized(sizes.begin() + static_cast<std::ptrdiff_t>(axis), sizes.end());
  const kernels::LayerNormOptions options{static_cast<std::int64_t>(axis), context.float_attribute("epsilon", 1e-5)};
  Sizes statistics = sizes;
  std::fill(statistics.begin() + static_cast<std::ptrdiff_t>(axis), statistics.end(), 1);
  const bool bias = context.has(2);
  TORCH_CHECK(context.sizes(1) == normalized, "LayerNormalization of ", context.meta(0).sizes(), " with scale ",
              context.meta(1).sizes());
  Lowering lowering;
  const at::ScalarType precise = accumulate_type(context.dtype(0));
  lowering.outputs = {{context.dtype(0), sizes, {}}, {precise, statistics, {}}, {precise, statistics, {}}};
  lowering.kernel = [options, bias](const Args& args) {
    kernels::layer_norm_forward(args.in(0).contiguous(), args.in(1).contiguous(),
                                bias ? args.in(2).contiguous() : at::Tensor(), options, args.out(0), args.out(1),
                                args.out(2));
  };
  return lowering;
}

// Inputs: dy, x, mean, inv_std_dev, scale, bias*?. Outputs: dx, dscale, dbias.
Lowering lower_layer_normalization_gradient(const LowerContext& context) {
  const Sizes sizes = context.sizes(1);
  const auto axis = context.axis(context.int_attribute("axis", -1), context.rank(1));
  const Sizes normalized(sizes.begin() + axis, sizes.end());
  Lowering lowering;
  lowering.outputs = {{context.dtype(1), sizes, {}}, {context.dtype(4), normalized, {}}, {context.dtype(4), normalized, {}}};
  const std::int64_t rows = product(Sizes(sizes.begin(), sizes.begin() + axis)), columns = product(normalized);
  lowering.scratch = {{accumulate_type(context.dtype(1)), {kernels::layer_norm_workspace(rows, columns)}, {}}};
  lowering.in_place = {0};
  const kernels::LayerNormOptions options{axis};
  lowering.kernel = [options](const Args& args) {
    kernels::layer_norm_backward(args.in(0).contiguous(), args.in(1).contiguous(), args.in(2), args.in(3),
                                 args.in(4).contiguous(), options,
                                 {args.out(0), args.out(1), args.out(2), args.out(3)});
  };
  return lowering;
}

}  // namespace

REKINDLE_OP("", "LayerNormalization", lower_layer_normalization);
REKINDLE_OP("rekindle", "LayerNormalizationGradient", lower_layer_normalization_gradient);

}  // namespace rekindle::session
