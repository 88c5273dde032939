// Resize: one matrix of weights [out, in] for each resized dimension, one after the other, in float64.
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "session/lower/op.h"

namespace rekindle::session {
namespace {

struct Resize {
  std::string mode, nearest_mode, coordinates;
  bool antialias, exclude_outside;
  double cubic_a, extrapolation;
};

// One dimension: from `in` to `out` elements.
struct Axis {
  std::int64_t axis, in, out;
  double scale, roi_begin, roi_end;
};

// Where output `i` lies among the input's elements.
double position(const Resize& how, const Axis& axis, std::int64_t i) {
  const double at = static_cast<double>(i), in = static_cast<double>(axis.in), length = axis.scale * in;
  if (how.coordinates == "align_corners") return length == 1 ? 0 : at * (in - 1) / (length - 1);
  if (how.coordinates == "asymmetric") return at / axis.scale;
  if (how.coordinates == "pytorch_half_pixel") return length == 1 ? -0.5 : (at + 0.5) / axis.scale - 0.5;
  if (how.coordinates == "half_pixel") return (at + 0.5) / axis.scale - 0.5;
  if (how.coordinates == "half_pixel_symmetric") {
    const double adjustment = static_cast<double>(axis.out) / length;
    return in / 2 * (1 - adjustment) + (at + 0.5) / axis.scale - 0.5;
  }
  TORCH_CHECK(how.coordinates == "tf_crop_and_resize", "coordinate_transformation_mode '", how.coordinates,
              "'");
  const double width = axis.roi_end - axis.roi_begin;
  const double inside = length == 1 ? width * (in - 1) / 2 : at * width * (in - 1) / (length - 1);
  return inside + axis.roi_begin * (in - 1);
}

double cubic(double x, double a) {
  x = std::fabs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

// Weights of the elements first, first + 1, ... around a position.
struct Taps {
  std::int64_t first;
  std::vector<double> weights;
};

Taps nearest_tap(const Resize& how, double x) {
  const double below = std::floor(x), ratio = x - below;
  bool up = ratio > 0.5;
  if (how.nearest_mode == "round_prefer_ceil") up = ratio >= 0.5;
  if (how.nearest_mode == "floor") up = false;
  if (how.nearest_mode == "ceil") up = ratio > 0;
  return {static_cast<std::int64_t>(below) + (up ? 1 : 0), {1.0}};
}

Taps taps_at(const Resize& how, double x, double scale) {
  if (how.mode == "nearest") return nearest_tap(how, x);
  TORCH_CHECK(how.mode == "linear" || how.mode == "cubic", "Resize in mode '", how.mode, "'");
  const bool is_cubic = how.mode == "cubic";
  const double shrink = how.antialias ? std::min(scale, 1.0) : 1.0, radius = (is_cubic ? 2 : 1) / shrink;
  Taps taps{static_cast<std::int64_t>(std::floor(x - radius)) + 1, {}};
  for (std::int64_t i = taps.first; static_cast<double>(i) < x + radius; ++i) {
    const double distance = (static_cast<double>(i) - x) * shrink;
    taps.weights.push_back(is_cubic ? cubic(distance, how.cubic_a) : std::max(0.0, 1 - std::fabs(distance)));
  }
  return taps;
}

void normalize(std::vector<double>& weights) {
  double sum = 0;
  for (const double weight : weights) sum += weight;
  if (sum == 0) return;
  for (double& weight : weights) weight /= sum;
}

// [out, in]; an element outside counts for the one at the edge, unless it is excluded.
at::Tensor weights_of(const Resize& how, const Axis& axis) {
  at::Tensor matrix = at::zeros({axis.out, axis.in}, at::TensorOptions().dtype(at::kDouble));
  auto* rows = matrix.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < axis.out; ++i) {
    Taps taps = taps_at(how, position(how, axis, i), axis.scale);
    const auto outside = [&](std::size_t k) {
      const std::int64_t from = taps.first + static_cast<std::int64_t>(k);
      return from < 0 || from >= axis.in;
    };
    for (std::size_t k = 0; k < taps.weights.size(); ++k) {
      if (how.exclude_outside && outside(k)) taps.weights[k] = 0;
    }
    if (how.exclude_outside || how.antialias) normalize(taps.weights);
    for (std::size_t k = 0; k < taps.weights.size(); ++k) {
      const auto from = std::clamp<std::int64_t>(taps.first + static_cast<std::int64_t>(k), 0, axis.in - 1);
      rows[i * axis.in + from] += taps.weights[k];
    }
  }
  return matrix;
}

at::Tensor resized(const at::Tensor& x, const Resize& how, const Axis& axis) {
  const at::Tensor y =
      x.movedim(axis.axis, -1).matmul(weights_of(how, axis).t().to(x.device())).movedim(-1, axis.axis);
  if (how.coordinates != "tf_crop_and_resize") return y;
  std::vector<double> outside;
  for (std::int64_t i = 0; i < axis.out; ++i) {
    const double at = position(how, axis, i);
    outside.push_back(at < 0 || at > static_cast<double>(axis.in - 1) ? 1 : 0);
  }
  Sizes along(static_cast<std::size_t>(x.dim()), 1);
  along[static_cast<std::size_t>(axis.axis)] = axis.out;
  return y.masked_fill(at::tensor(outside).view(along).ne(0).to(x.device()), how.extrapolation);
}

std::vector<double> doubles(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kDouble).contiguous().reshape({-1});
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

bool given(const LowerContext& context, std::size_t i) {
  return context.has(i) && context.meta(i).numel() > 0;
}

// The same scale for all, so that the result is inside (or around) the sizes asked for.
void keep_aspect_ratio(std::vector<Axis>& axes, bool not_larger) {
  double scale = axes.at(0).scale;
  for (const Axis& axis : axes)
    scale = not_larger ? std::min(scale, axis.scale) : std::max(scale, axis.scale);
  for (Axis& axis : axes) {
    axis.scale = scale;
    axis.out = static_cast<std::int64_t>(std::floor(scale * static_cast<double>(axis.in) + 0.5));
  }
}

// Inputs: x, region?, scales? or sizes?.
std::vector<Axis> axes_of(const LowerContext& context) {
  Sizes all(static_cast<std::size_t>(context.rank(0)));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
  const Sizes chosen = context.node().ints_attribute("axes", all);
  const std::vector<double> roi = given(context, 1) ? doubles(context.constant(1)) : std::vector<double>();
  const std::vector<double> scales = given(context, 2) ? doubles(context.constant(2)) : std::vector<double>();
  const Sizes sizes = given(context, 3) ? context.ints(3) : Sizes();
  TORCH_CHECK(scales.size() == chosen.size() || sizes.size() == chosen.size(),
              "Resize needs scales or sizes for ", chosen.size(), " axes");
  std::vector<Axis> axes;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    Axis axis{context.axis(chosen[i], context.rank(0)), 0, 0, 1, 0, 1};
    axis.in = context.meta(0).size(axis.axis);
    axis.scale = sizes.empty() ? scales[i] : static_cast<double>(sizes[i]) / static_cast<double>(axis.in);
    axis.out = sizes.empty() ? static_cast<std::int64_t>(std::floor(scales[i] * static_cast<double>(axis.in)))
                             : sizes[i];
    if (roi.size() == 2 * chosen.size()) {
      axis.roi_begin = roi[i];
      axis.roi_end = roi[chosen.size() + i];
    }
    axes.push_back(axis);
  }
  const std::string policy = context.string_attribute("keep_aspect_ratio_policy", "stretch");
  if (!sizes.empty() && policy != "stretch") keep_aspect_ratio(axes, policy == "not_larger");
  return axes;
}

// Back to x's type: integers are rounded and saturated.
void settle(at::Tensor out, const at::Tensor& y) {
  if (at::isFloatingType(out.scalar_type())) {
    out.copy_(y);
  } else {
    const bool is_signed = out.scalar_type() != at::kByte;
    const auto bits = static_cast<int>(
        std::min<std::size_t>(8 * c10::elementSize(out.scalar_type()) - (is_signed ? 1 : 0), 53));
    const double most = std::ldexp(1.0, bits) - 1;
    out.copy_(y.round().clamp(is_signed ? -most - 1 : 0, most));
  }
}

Lowering lower_resize(const LowerContext& context) {
  const Resize how{context.string_attribute("mode", "nearest"),
                   context.string_attribute("nearest_mode", "round_prefer_floor"),
                   context.string_attribute("coordinate_transformation_mode", "half_pixel"),
                   context.int_attribute("antialias", 0) != 0,
                   context.int_attribute("exclude_outside", 0) != 0,
                   context.float_attribute("cubic_coeff_a", -0.75),
                   context.float_attribute("extrapolation_value", 0)};
  const std::vector<Axis> axes = axes_of(context);
  Sizes sizes = context.sizes(0);
  for (const Axis& axis : axes) sizes[static_cast<std::size_t>(axis.axis)] = axis.out;
  return computed(context.dtype(0), sizes, [how, axes](const Args& args) {
    at::Tensor y = args.in(0).to(at::kDouble);
    for (const Axis& axis : axes) {
      const bool whole = axis.roi_begin == 0 && axis.roi_end == 1;
      if (axis.scale != 1 || axis.in != axis.out || !whole) y = resized(y, how, axis);
    }
    settle(args.out(), y);
  });
}

}  // namespace

REKINDLE_OP("", "Resize", lower_resize);

}  // namespace rekindle::session
