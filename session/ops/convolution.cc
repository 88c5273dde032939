// Convolutions, also of integers: those are computed in float64, which
// is exact for the sums that int32 holds.
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/convolution.h>

#include "session/ops/quantization.h"
#include "session/ops/window.h"

namespace rekindle::session {
namespace {

Sizes tail(const Sizes& sizes, std::ptrdiff_t from) { return {sizes.begin() + from, sizes.end()}; }

// Of x[N, C, ...] and weight[M, C / group, ...]; `weight` is the position of the weight among the inputs.
Windows convolution_windows(const LowerContext& context, std::size_t weight) {
  TORCH_CHECK(context.rank(0) >= 3 && context.rank(weight) == context.rank(0), "convolution of ",
              context.meta(0).sizes(), " and ", context.meta(weight).sizes());
  return windows_of(context, tail(context.sizes(0), 2), tail(context.sizes(weight), 2));
}

Sizes convolved_sizes(const LowerContext& context, std::size_t weight, const Windows& windows) {
  Sizes sizes{context.meta(0).size(0), context.meta(weight).size(0)};
  sizes.insert(sizes.end(), windows.positions.begin(), windows.positions.end());
  return sizes;
}

at::Tensor convolve(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                    const Windows& windows, std::int64_t group) {
  const Sizes none(windows.kernel.size(), 0);
  const bool even = windows.begin == windows.end;
  const at::Tensor padded = even ? x : pad_spatial(x, windows, 0, none);
  return at::convolution(padded, weight, bias, windows.strides, even ? windows.begin : none,
                         windows.dilations,
                         /*transposed=*/false, none, group);
}

Lowering lower_conv(const LowerContext& context) {
  const Windows windows = convolution_windows(context, 1);
  return computed(
      context.dtype(0), convolved_sizes(context, 1, windows),
      [windows, group = context.int_attribute("group", 1), bias = context.has(2)](const Args& args) {
        args.out().copy_(convolve(args.in(0), args.in(1), bias ? std::optional(args.in(2)) : std::nullopt,
                                  windows, group));
      });
}

// x - zero point of x; w - zero point of w, one for all or one per output channel.
at::Tensor centered(const at::Tensor& x, const at::Tensor& zero_point, std::int64_t axis) {
  const at::Tensor wide = x.to(at::kDouble);
  return zero_point.defined() ? wide.sub(along_axis(zero_point.to(at::kDouble), x.dim(), axis)) : wide;
}

// Inputs: x, w, zero point of x?, zero point of w?.
Lowering lower_conv_integer(const LowerContext& context) {
  const Windows windows = convolution_windows(context, 1);
  return computed(at::kInt, convolved_sizes(context, 1, windows),
                  [windows, group = context.int_attribute("group", 1), x_zero = context.has(2),
                   w_zero = context.has(3)](const Args& args) {
                    const at::Tensor x = centered(args.in(0), x_zero ? args.in(2) : at::Tensor(), 1);
                    const at::Tensor w = centered(args.in(1), w_zero ? args.in(3) : at::Tensor(), 0);
                    args.out().copy_(convolve(x, w, std::nullopt, windows, group));
                  });
}

// Inputs: x, its scale and zero point, w, its scale and zero point, scale and zero point of y, bias? (int32).
Lowering lower_qlinear_conv(const LowerContext& context) {
  const Windows windows = convolution_windows(context, 3);
  return computed(
      context.dtype(7), convolved_sizes(context, 3, windows),
      [windows, group = context.int_attribute("group", 1), bias = context.has(8)](const Args& args) {
        const at::Tensor x = centered(args.in(0), args.in(2), 1), w = centered(args.in(3), args.in(5), 0);
        at::Tensor sums = convolve(x, w, std::nullopt, windows, group);
        if (bias) sums = sums.add(along_axis(args.in(8).to(at::kDouble), sums.dim(), 1));
        const at::Tensor scale =
            args.in(1).to(at::kDouble).mul(args.in(4).to(at::kDouble)).div(args.in(6).to(at::kDouble));
        quantize_into(args.out(), sums.mul(along_axis(scale, sums.dim(), 1)), args.in(7));
      });
}

// Padding of a transposed convolution: what is cut off the full result; where `output_shape` or auto_pad asks
// for another size, the padding follows from it.
struct Transposed {
  Sizes strides, dilations, output_padding, from_last, sizes;
};

Transposed transposed_of(const LowerContext& context) {
  const graph::Node& node = context.node();
  const Sizes spatial = tail(context.sizes(0), 2);
  const std::size_t rank = spatial.size();
  const Sizes kernel = node.ints_attribute("kernel_shape", tail(context.sizes(1), 2)), none(rank, 0);
  Transposed result{node.ints_attribute("strides", Sizes(rank, 1)),
                    node.ints_attribute("dilations", Sizes(rank, 1)),
                    node.ints_attribute("output_padding", none),
                    Sizes(2 * rank, 0),
                    {}};
  const Sizes pads = node.ints_attribute("pads", Sizes(2 * rank, 0)),
              shape = node.ints_attribute("output_shape", {});
  const std::string auto_pad = context.string_attribute("auto_pad", "NOTSET");
  result.sizes = {context.meta(0).size(0), context.meta(1).size(1) * context.int_attribute("group", 1)};
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t stride = result.strides.at(i);
    const std::int64_t full = (spatial[i] - 1) * stride + result.output_padding.at(i) +
                              (kernel.at(i) - 1) * result.dilations.at(i) + 1;
    std::int64_t begin = auto_pad == "NOTSET" ? pads.at(i) : 0,
                 end = auto_pad == "NOTSET" ? pads.at(rank + i) : 0;
    if (!shape.empty() || auto_pad.starts_with("SAME")) {
      const std::int64_t total =
          full - (shape.empty() ? spatial[i] * stride : shape[shape.size() - rank + i]);
      // Where more is asked for than there is, zeros follow at the end.
      begin = total < 0 ? 0 : auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
      end = total - begin;
    }
    result.from_last[2 * (rank - 1 - i)] = -begin;
    result.from_last[2 * (rank - 1 - i) + 1] = -end;
    result.sizes.push_back(full - begin - end);
  }
  return result;
}

Lowering lower_conv_transpose(const LowerContext& context) {
  const Transposed how = transposed_of(context);
  return computed(context.dtype(0), how.sizes,
                  [how, group = context.int_attribute("group", 1), bias = context.has(2)](const Args& args) {
                    const Sizes none(how.strides.size(), 0);
                    const at::Tensor y = at::convolution(args.in(0), args.in(1), std::nullopt, how.strides,
                                                         none, how.dilations,
                                                         /*transposed=*/true, how.output_padding, group);
                    args.out().copy_(at::constant_pad_nd(y, how.from_last, 0));
                    if (bias) args.out().add_(along_axis(args.in(2), y.dim(), 1));
                  });
}

}  // namespace

REKINDLE_OP("", "Conv", lower_conv);
REKINDLE_OP("", "ConvInteger", lower_conv_integer);
REKINDLE_OP("", "ConvTranspose", lower_conv_transpose);
REKINDLE_OP("", "QLinearConv", lower_qlinear_conv);

}  // namespace rekindle::session
