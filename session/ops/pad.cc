// Pad in all its modes, and CenterCropPad. ONNX pads are all begins, then all ends; negative ones crop.
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>

#include <numeric>

#include "session/lower/op.h"

namespace rekindle::session {
namespace {

struct Padding {
  std::int64_t axis, begin, end;
};

Sizes all_axes(const LowerContext& context) {
  Sizes axes(static_cast<std::size_t>(context.rank(0)));
  std::iota(axes.begin(), axes.end(), std::int64_t{0});
  return axes;
}

Sizes padded_sizes(Sizes sizes, const std::vector<Padding>& paddings) {
  for (const Padding& padding : paddings) {
    std::int64_t& size = sizes[static_cast<std::size_t>(padding.axis)];
    size += padding.begin + padding.end;
    TORCH_CHECK(size >= 0, "Pad crops more than dimension ", padding.axis, " has");
  }
  return sizes;
}

// ATen's order: begin and end of the last dimension first.
Sizes from_last(std::int64_t rank, const std::vector<Padding>& paddings) {
  Sizes numbers(static_cast<std::size_t>(2 * rank), 0);
  for (const Padding& padding : paddings) {
    const auto at = static_cast<std::size_t>(2 * (rank - 1 - padding.axis));
    numbers[at] = padding.begin;
    numbers[at + 1] = padding.end;
  }
  return numbers;
}

// Where each element along a padded axis of `size` elements comes from.
at::Tensor sources(const Padding& padding, std::int64_t size, const std::string& mode, at::Device device) {
  at::Tensor at = at::arange(-padding.begin, size + padding.end, at::TensorOptions(at::kLong).device(device));
  if (mode == "edge") return at.clamp(0, size - 1);
  if (mode == "wrap") return at.remainder(size);
  if (size == 1) return at.mul(0);
  at = at.remainder(2 * (size - 1));  // there and back
  return at.sub(size - 1).abs().mul(-1).add(size - 1);
}

Lowering lower_pad(const LowerContext& context) {
  const std::string mode = context.string_attribute("mode", "constant");
  TORCH_CHECK_NOT_IMPLEMENTED(mode == "constant" || mode == "edge" || mode == "reflect" || mode == "wrap",
                              "Pad in mode ", mode);
  const Sizes pads = context.ints(1), axes = context.has(3) ? context.ints(3) : all_axes(context);
  std::vector<Padding> paddings;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    paddings.push_back({context.axis(axes[i], context.rank(0)), pads.at(i), pads.at(i + axes.size())});
  }
  const Sizes sizes = padded_sizes(context.sizes(0), paddings);
  if (mode == "constant") {
    return computed(
        context.dtype(0), sizes,
        [numbers = from_last(context.rank(0), paddings), given = context.has(2)](const Args& args) {
          const at::Scalar value = given ? args.in(2).item() : at::Scalar(0);
          at::constant_pad_nd_out(args.out(), args.in(0), numbers, value);
        });
  }
  return computed(context.dtype(0), sizes, [paddings, mode](const Args& args) {
    at::Tensor x = args.in(0);
    for (const Padding& padding : paddings) {
      if (padding.begin == 0 && padding.end == 0) continue;
      x = x.index_select(padding.axis, sources(padding, x.size(padding.axis), mode, x.device()));
    }
    args.out().copy_(x);
  });
}

// What is cut or added is shared by both sides; the end gets the odd one.
Lowering lower_center_crop_pad(const LowerContext& context) {
  const Sizes wanted = context.ints(1), axes = context.node().ints_attribute("axes", all_axes(context));
  TORCH_CHECK(wanted.size() == axes.size(), "CenterCropPad to ", wanted.size(), " sizes along ", axes.size(),
              " axes");
  std::vector<Padding> paddings;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::int64_t axis = context.axis(axes[i], context.rank(0)),
                       more = wanted[i] - context.meta(0).size(axis);
    const std::int64_t begin = more >= 0 ? more / 2 : -(-more / 2);
    paddings.push_back({axis, begin, more - begin});
  }
  return computed(context.dtype(0), padded_sizes(context.sizes(0), paddings),
                  [numbers = from_last(context.rank(0), paddings)](const Args& args) {
                    at::constant_pad_nd_out(args.out(), args.in(0), numbers, 0);
                  });
}

}  // namespace

REKINDLE_OP("", "CenterCropPad", lower_center_crop_pad);
REKINDLE_OP("", "Pad", lower_pad);

}  // namespace rekindle::session
