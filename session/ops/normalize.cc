// Normalizations of models that come as ONNX; LayerNormalization, which training needs, is in
// normalization.cc. Statistics are taken in float32 for 16-bit inputs.
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/var.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <numeric>

#include "session/ops/quantization.h"

namespace rekindle::session {
namespace {

at::ScalarType precise(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
}

Sizes axes_from(std::int64_t first, std::int64_t rank) {
  Sizes axes(static_cast<std::size_t>(rank - first));
  std::iota(axes.begin(), axes.end(), first);
  return axes;
}

// (x - mean) / sqrt(variance + epsilon) over `axes`.
at::Tensor standardized(const at::Tensor& x, const Sizes& axes, double epsilon) {
  const at::Tensor centered = x.sub(x.mean(axes, /*keepdim=*/true));
  return centered.mul(centered.square().mean(axes, /*keepdim=*/true).add(epsilon).rsqrt());
}

Lowering lower_rms_normalization(const LowerContext& context) {
  const std::int64_t rank = context.rank(0), axis = context.axis(context.int_attribute("axis", -1), rank);
  return computed(
      context.dtype(1), context.sizes(0),
      [axes = axes_from(axis, rank), epsilon = context.float_attribute("epsilon", 1e-5)](const Args& args) {
        const at::Tensor x = args.in(0).to(precise(args.in(0).scalar_type()));
        const at::Tensor y = x.div(x.square().mean(axes, /*keepdim=*/true).add(epsilon).sqrt());
        args.out().copy_(y.to(args.out().scalar_type()).mul(args.in(1)));
      });
}

// Inputs: x[N, C, ...], scale, bias (one per channel; per group in opset 18).
Lowering lower_group_normalization(const LowerContext& context) {
  const std::int64_t groups = context.int_attribute("num_groups", 0), channels = context.meta(0).size(1);
  TORCH_CHECK(groups > 0 && channels % groups == 0, "GroupNormalization of ", channels, " channels in ",
              groups, " groups");
  return computed(
      context.dtype(0), context.sizes(0),
      [groups, channels, epsilon = context.float_attribute("epsilon", 1e-5)](const Args& args) {
        const at::Tensor x = args.in(0).to(precise(args.in(0).scalar_type()));
        const at::Tensor y = standardized(x.reshape({x.size(0), groups, -1}), {2}, epsilon).view(x.sizes());
        const auto per_channel = [&](const at::Tensor& given) {
          const std::int64_t each = channels / given.numel();
          return along_axis(given.to(x.scalar_type()).repeat_interleave(each), x.dim(), 1);
        };
        args.out().copy_(y.mul(per_channel(args.in(1))).add(per_channel(args.in(2))));
      });
}

Lowering lower_instance_normalization(const LowerContext& context) {
  return computed(
      context.dtype(0), context.sizes(0),
      [axes = axes_from(2, context.rank(0)),
       epsilon = context.float_attribute("epsilon", 1e-5)](const Args& args) {
        const at::Tensor x = args.in(0).to(precise(args.in(0).scalar_type()));
        const at::Tensor y = standardized(x, axes, epsilon);
        args.out().copy_(y.mul(along_axis(args.in(1), x.dim(), 1)).add(along_axis(args.in(2), x.dim(), 1)));
      });
}

// Inputs: x, scale, bias, mean, variance. Outputs: y and, in training, the running mean and variance.
Lowering lower_batch_normalization(const LowerContext& context) {
  const bool training = context.int_attribute("training_mode", 0) != 0, running = context.num_outputs() > 1;
  TORCH_CHECK_NOT_IMPLEMENTED(training || !running,
                              "BatchNormalization with statistics but without training_mode");
  const double epsilon = context.float_attribute("epsilon", 1e-5),
               momentum = context.float_attribute("momentum", 0.9);
  Lowering lowering;
  lowering.outputs = {{context.dtype(0), context.sizes(0), {}}};
  if (running) lowering.outputs.push_back({context.dtype(3), context.sizes(3), {}});
  if (running) lowering.outputs.push_back({context.dtype(4), context.sizes(4), {}});
  lowering.kernel = [training, running, epsilon, momentum](const Args& args) {
    const at::Tensor x = args.in(0).to(precise(args.in(0).scalar_type()));
    at::Tensor mean = args.in(3), variance = args.in(4);
    if (training) {
      Sizes axes = axes_from(1, x.dim());
      axes[0] = 0;
      mean = x.mean(axes);
      variance = at::var(x, axes, /*unbiased=*/false);
    }
    const auto of_channel = [&](const at::Tensor& given) {
      return along_axis(given.to(x.scalar_type()), x.dim(), std::min<std::int64_t>(1, x.dim() - 1));
    };
    const at::Tensor y = x.sub(of_channel(mean)).div(of_channel(variance).add(epsilon).sqrt());
    args.out(0).copy_(y.mul(of_channel(args.in(1))).add(of_channel(args.in(2))));
    if (!running) return;
    args.out(1).copy_(args.in(3).mul(momentum).add(mean.mul(1 - momentum)));
    args.out(2).copy_(args.in(4).mul(momentum).add(variance.mul(1 - momentum)));
  };
  return lowering;
}

Lowering lower_mean_variance_normalization(const LowerContext& context) {
  Sizes axes = context.node().ints_attribute("axes", {0, 2, 3});
  for (std::int64_t& axis : axes) axis = context.axis(axis, context.rank(0));
  return computed(context.dtype(0), context.sizes(0), [axes](const Args& args) {
    const at::Tensor centered = args.in(0).sub(args.in(0).mean(axes, true));
    args.out().copy_(centered.div(centered.square().mean(axes, true).sqrt().add(1e-9)));
  });
}

// A norm of zero leaves zeros.
Lowering lower_lp_normalization(const LowerContext& context) {
  const std::int64_t axis = context.axis(context.int_attribute("axis", -1), context.rank(0));
  return computed(context.dtype(0), context.sizes(0),
                  [axis, p = context.int_attribute("p", 2)](const Args& args) {
                    const at::Tensor norm = at::linalg_vector_norm(args.in(0), p, {axis}, /*keepdim=*/true);
                    args.out().copy_(at::where(norm.eq(0), at::zeros_like(args.in(0)), args.in(0).div(norm)));
                  });
}

// Across channels: x / (bias + alpha / size * sum of squares of the `size` channels around)^beta.
Lowering lower_lrn(const LowerContext& context) {
  const std::int64_t size = context.int_attribute("size", 1);
  const double alpha = context.float_attribute("alpha", 1e-4), beta = context.float_attribute("beta", 0.75),
               bias = context.float_attribute("bias", 1);
  TORCH_CHECK(size > 0, "LRN over ", size, " channels");
  return computed(context.dtype(0), context.sizes(0), [size, alpha, beta, bias](const Args& args) {
    const at::Tensor squares = args.in(0).square();
    at::Tensor sums = at::zeros_like(squares);
    const std::int64_t channels = squares.size(1), before = (size - 1) / 2;
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::int64_t begin = std::max<std::int64_t>(0, c - before),
                         end = std::min(channels, c - before + size);
      sums.select(1, c).copy_(squares.narrow(1, begin, end - begin).sum(1));
    }
    args.out().copy_(args.in(0).div(sums.mul(alpha / static_cast<double>(size)).add(bias).pow(beta)));
  });
}

}  // namespace

REKINDLE_OP("", "BatchNormalization", lower_batch_normalization);
REKINDLE_OP("", "GroupNormalization", lower_group_normalization);
REKINDLE_OP("", "InstanceNormalization", lower_instance_normalization);
REKINDLE_OP("", "LRN", lower_lrn);
REKINDLE_OP("", "LpNormalization", lower_lp_normalization);
REKINDLE_OP("", "MeanVarianceNormalization", lower_mean_variance_normalization);
REKINDLE_OP("", "RMSNormalization", lower_rms_normalization);

}  // namespace rekindle::session
