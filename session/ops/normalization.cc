// LayerNormalization and its gradient.
#include <ATen/AccumulateType.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>

#include "kernels/layer_norm.h"
#include "session/lower/op.h"
#include "session/lower/settled.h"

namespace rekindle::session {
namespace {

// Whether PyTorch's kernels of an accelerator run: they give tensors of their own, whose rounding is eager's.
// Statistics are those of the accumulator, on CUDA for all dtypes.
bool is_given(at::Device device, at::ScalarType input, at::ScalarType scale) {
  return !device.is_cpu() && input == scale && (device.is_cuda() || !at::isReducedFloatingType(input));
}

// Whether our kernels run: they are the faster ones but for float16
// (docs/decisions/0023-layer-normalization.md). Over one column the exact gradient of x is 0: what eager's
// rounding leaves of it, only ATen leaves, too.
bool has_kernel(at::ScalarType input, at::ScalarType scale, const Sizes& normalized) {
  return input == scale && input != at::kHalf && product(normalized) > 1;
}

// Of mean and inverse standard deviation. PyTorch's kernels for the CPU have the input's, float32 if only the
// scale is.
at::ScalarType statistics_type(at::ScalarType input, at::ScalarType scale, const Sizes& normalized) {
  const bool precise = scale == at::kFloat || has_kernel(input, scale, normalized);
  return at::isReducedFloatingType(input) && precise ? at::kFloat : input;
}

void give(const Args& args, std::tuple<at::Tensor, at::Tensor, at::Tensor> results,
          const std::vector<Layout>& planned) {
  auto& [first, second, third] = results;
  args.out(0) = settled(std::move(first), planned[0], /*shared=*/false, "LayerNormalization");
  args.out(1) = settled(std::move(second), planned[1], /*shared=*/false, "LayerNormalization");
  args.out(2) = settled(std::move(third), planned[2], /*shared=*/false, "LayerNormalization");
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
  lowering.gives = is_given(context.device(), context.dtype(0), context.dtype(1));
  const at::ScalarType precise = lowering.gives
                                     ? at::toAccumulateType(context.dtype(0), /*is_cuda=*/true)
                                     : statistics_type(context.dtype(0), context.dtype(1), normalized);
  lowering.outputs = {{context.dtype(0), sizes, {}}, {precise, statistics, {}}, {precise, statistics, {}}};
  if (lowering.gives) {
    lowering.kernel = [normalized, epsilon, bias, planned = lowering.outputs](const Args& args) {
      const std::optional<at::Tensor> shift = bias ? std::optional(args.in(2).contiguous()) : std::nullopt;
      give(
          args,
          at::native_layer_norm(args.in(0).contiguous(), normalized, args.in(1).contiguous(), shift, epsilon),
          planned);
    };
    return lowering;
  }
  if (has_kernel(context.dtype(0), context.dtype(1), normalized)) {
    const kernels::LayerNormOptions options{static_cast<std::int64_t>(axis), epsilon};
    lowering.kernel = [options, bias](const Args& args) {
      kernels::layer_norm_forward(args.in(0).contiguous(), args.in(1).contiguous(),
                                  bias ? args.in(2).contiguous() : at::Tensor(), options, args.out(0),
                                  args.out(1), args.out(2));
    };
    return lowering;
  }
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
  if (is_given(context.device(), context.dtype(1), context.dtype(4))) {
    lowering.gives = true;
    lowering.kernel = [normalized, planned = lowering.outputs](const Args& args) {
      // Kernels of CUDA take memory as it lies. ATen wants a bias of which it reads only that there is one.
      const at::Tensor scale = args.in(4).contiguous();
      give(args,
           at::native_layer_norm_backward(args.in(0).contiguous(), args.in(1).contiguous(), normalized,
                                          args.in(2), args.in(3), scale, scale, {true, true, true}),
           planned);
    };
    return lowering;
  }
  if (has_kernel(context.dtype(1), context.dtype(4), normalized)) {
    const std::int64_t rows = product(Sizes(sizes.begin(), sizes.begin() + axis));
    const std::int64_t workspace = kernels::layer_norm_workspace(rows, product(normalized));
    lowering.scratch = {{context.dtype(2), {workspace}, {}}};
    lowering.in_place = {0};
    lowering.kernel = [options = kernels::LayerNormOptions{axis}](const Args& args) {
      kernels::layer_norm_backward(args.in(0).contiguous(), args.in(1).contiguous(), args.in(2), args.in(3),
                                   args.in(4).contiguous(), options,
                                   {args.out(0), args.out(1), args.out(2), args.out(3)});
    };
    return lowering;
  }
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
