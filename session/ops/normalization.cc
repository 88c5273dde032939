// LayerNormalization and its gradient.
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>

#include "session/op.h"

namespace rekindle::session {
namespace {

// Of mean and inverse standard deviation: as PyTorch's kernels for the CPU
// have it, float32 if only the scale is.
at::ScalarType statistics_type(at::ScalarType input, at::ScalarType scale) {
  return at::isReducedFloatingType(input) && scale == at::kFloat ? at::kFloat : input;
}

// Outputs: y, mean and inverse standard deviation, the last two with ones along the normalized dimensions.
Lowering lower_layer_normalization(const LowerContext& context) {
  const Sizes sizes = context.sizes(0);
  const auto axis =
      static_cast<std::size_t>(context.axis(context.int_attribute("axis", -1), context.rank(0)));
  const Sizes normalized(sizes.begin() + static_cast<std::ptrdiff_t>(axis), sizes.end());
  const double epsilon = context.float_attribute("epsilon", 1e-5);
  Sizes statistics = sizes;
  std::fill(statistics.begin() + static_cast<std::ptrdiff_t>(axis), statistics.end(), 1);
  const bool bias = context.has(2);
  TORCH_CHECK(context.sizes(1) == normalized, "LayerNormalization of ", context.meta(0).sizes(),
              " with scale ", context.meta(1).sizes());
  Lowering lowering;
  const at::ScalarType precise = statistics_type(context.dtype(0), context.dtype(1));
  lowering.outputs = {{context.dtype(0), sizes, {}}, {precise, statistics, {}}, {precise, statistics, {}}};
  lowering.kernel = [normalized, epsilon, bias](const Args& args) {
    const std::optional<at::Tensor> shift = bias ? std::optional(args.in(2)) : std::nullopt;
    at::native_layer_norm_out(args.out(0), args.out(1), args.out(2), args.in(0), normalized, args.in(1),
                              shift, epsilon);
  };
  return lowering;
}

// Inputs: dy, x, mean, inv_std_dev, scale, bias*?. Outputs: dx, dscale, dbias.
Lowering lower_layer_normalization_gradient(const LowerContext& context) {
  const Sizes sizes = context.sizes(1);
  const auto axis = context.axis(context.int_attribute("axis", -1), context.rank(1));
  const Sizes normalized(sizes.begin() + axis, sizes.end());
  Lowering lowering;
  lowering.outputs = {
      {context.dtype(1), sizes, {}}, {context.dtype(4), normalized, {}}, {context.dtype(4), normalized, {}}};
  lowering.kernel = [normalized](const Args& args) {
    // ATen wants a bias of which it reads only that there is one.
    at::native_layer_norm_backward_out(args.out(0), args.out(1), args.out(2), args.in(0), args.in(1),
                                       normalized, args.in(2), args.in(3), args.in(4), args.in(4),
                                       {true, true, true});
  };
  return lowering;
}

}  // namespace

REKINDLE_OP("", "LayerNormalization", lower_layer_normalization);
REKINDLE_OP("rekindle", "LayerNormalizationGradient", lower_layer_normalization_gradient);

}  // namespace rekindle::session
