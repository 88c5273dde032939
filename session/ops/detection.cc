// Object detection: suppression of boxes, regions of interest, deformable convolution.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/grid_sampler.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "session/ops/quantization.h"
#include "session/ops/window.h"

namespace rekindle::session {
namespace {

// Corners with the lower coordinate first: y or x, the order does not matter.
struct Box {
  double a1, b1, a2, b2;
  double area() const { return (a2 - a1) * (b2 - b1); }
};

Box box_at(const double* numbers, bool centre) {
  if (centre)
    return {numbers[0] - numbers[2] / 2, numbers[1] - numbers[3] / 2, numbers[0] + numbers[2] / 2,
            numbers[1] + numbers[3] / 2};
  return {std::min(numbers[0], numbers[2]), std::min(numbers[1], numbers[3]),
          std::max(numbers[0], numbers[2]), std::max(numbers[1], numbers[3])};
}

double overlap(const Box& x, const Box& y) {
  const double a = std::max(0.0, std::min(x.a2, y.a2) - std::max(x.a1, y.a1)),
               b = std::max(0.0, std::min(x.b2, y.b2) - std::max(x.b1, y.b1));
  const double both = a * b, all = x.area() + y.area() - both;
  return all > 0 ? both / all : 0;
}

struct Suppression {
  std::int64_t most;
  double overlap, score;
};

// The boxes of one class that stay, best first.
std::vector<std::int64_t> kept(const std::vector<Box>& boxes, const double* scores, const Suppression& how) {
  std::vector<std::int64_t> order(boxes.size()), chosen;
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return scores[a] > scores[b]; });
  for (const std::int64_t candidate : order) {
    if (static_cast<std::int64_t>(chosen.size()) >= how.most || !(scores[candidate] > how.score)) break;
    const Box& box = boxes[static_cast<std::size_t>(candidate)];
    const bool covered = std::any_of(chosen.begin(), chosen.end(), [&](std::int64_t other) {
      return overlap(box, boxes[static_cast<std::size_t>(other)]) > how.overlap;
    });
    if (!covered) chosen.push_back(candidate);
  }
  return chosen;
}

// in: boxes[batch, boxes, 4], scores[batch, classes, boxes], most per class?, overlap?, score?. Rows of
// (batch, class, box).
at::Tensor suppressed(const Tensors& in, bool centre) {
  const auto number = [&](std::size_t i, double fallback) {
    return i < in.size() && in[i].defined() ? in[i].reshape({-1}).select(0, 0).item().toDouble() : fallback;
  };
  const Suppression how{static_cast<std::int64_t>(number(2, 0)), number(3, 0), number(4, -INFINITY)};
  const at::Tensor boxes = in[0].cpu().to(at::kDouble).contiguous(),
                   scores = in[1].cpu().to(at::kDouble).contiguous();
  const std::int64_t count = boxes.size(1);
  TORCH_CHECK(boxes.dim() == 3 && boxes.size(2) == 4 && scores.dim() == 3 && scores.size(2) == count &&
                  scores.size(0) == boxes.size(0),
              "NonMaxSuppression of boxes ", boxes.sizes(), " and scores ", scores.sizes());
  Sizes rows;
  for (std::int64_t batch = 0; batch < boxes.size(0); ++batch) {
    std::vector<Box> all;
    for (std::int64_t i = 0; i < count; ++i)
      all.push_back(box_at(boxes.const_data_ptr<double>() + (batch * count + i) * 4, centre));
    for (std::int64_t c = 0; c < scores.size(1); ++c) {
      const double* of_class = scores.const_data_ptr<double>() + (batch * scores.size(1) + c) * count;
      for (const std::int64_t box : kept(all, of_class, how)) rows.insert(rows.end(), {batch, c, box});
    }
  }
  at::Tensor result =
      at::empty({static_cast<std::int64_t>(rows.size() / 3), 3}, at::TensorOptions().dtype(at::kLong));
  std::copy(rows.begin(), rows.end(), result.mutable_data_ptr<std::int64_t>());
  return result.to(in[0].device());
}

Lowering lower_non_max_suppression(const LowerContext& context) {
  return functional(
      context,
      [centre = context.int_attribute("center_point_box", 0) != 0](const Tensors& in) -> Tensors {
        return {suppressed(in, centre)};
      },
      /*sized_by_data=*/true);
}

struct RoiAlign {
  std::int64_t height, width, ratio;
  double scale;
  bool half_pixel, maximum;
};

// The four elements around a point and their weights; none beyond the edge by more than one.
struct Corner {
  std::int64_t y, x;
  double weight;
};
std::array<Corner, 4> corners(double y, double x, std::int64_t height, std::int64_t width) {
  if (y < -1 || x < -1 || y > static_cast<double>(height) || x > static_cast<double>(width)) return {};
  const auto low = [](double& at, std::int64_t size) {
    at = std::max(at, 0.0);
    auto floor = static_cast<std::int64_t>(at);
    if (floor >= size - 1) at = static_cast<double>(floor = size - 1);
    return floor;
  };
  const std::int64_t y0 = low(y, height), x0 = low(x, width), y1 = std::min(y0 + 1, height - 1),
                     x1 = std::min(x0 + 1, width - 1);
  const double dy = y - static_cast<double>(y0), dx = x - static_cast<double>(x0);
  return {
      {{y0, x0, (1 - dy) * (1 - dx)}, {y0, x1, (1 - dy) * dx}, {y1, x0, dy * (1 - dx)}, {y1, x1, dy * dx}}};
}

// One region (x1, y1, x2, y2) of one plane [H, W] into [height, width].
void align(const RoiAlign& how, const double* roi, at::TensorAccessor<double, 2> plane,
           at::TensorAccessor<double, 2> out) {
  const double shift = how.half_pixel ? 0.5 : 0, x1 = roi[0] * how.scale - shift,
               y1 = roi[1] * how.scale - shift;
  double width = roi[2] * how.scale - shift - x1, height = roi[3] * how.scale - shift - y1;
  if (!how.half_pixel) {
    width = std::max(width, 1.0);
    height = std::max(height, 1.0);
  }
  const double bin_h = height / static_cast<double>(how.height),
               bin_w = width / static_cast<double>(how.width);
  const std::int64_t rows = how.ratio > 0 ? how.ratio : static_cast<std::int64_t>(std::ceil(bin_h));
  const std::int64_t columns = how.ratio > 0 ? how.ratio : static_cast<std::int64_t>(std::ceil(bin_w));
  for (std::int64_t i = 0; i < how.height; ++i) {
    for (std::int64_t j = 0; j < how.width; ++j) {
      double sum = 0, most = -INFINITY;
      for (std::int64_t k = 0; k < rows * columns; ++k) {
        const double y = y1 + bin_h * (static_cast<double>(i) +
                                       (static_cast<double>(k / columns) + 0.5) / static_cast<double>(rows));
        const double x = x1 + bin_w * (static_cast<double>(j) + (static_cast<double>(k % columns) + 0.5) /
                                                                    static_cast<double>(columns));
        for (const Corner& corner : corners(y, x, plane.size(0), plane.size(1))) {
          const double value = corner.weight * plane[corner.y][corner.x];
          sum += value;
          most = std::max(most, value);
        }
      }
      const auto samples = static_cast<double>(std::max<std::int64_t>(rows * columns, 1));
      out[i][j] = how.maximum ? (rows * columns > 0 ? most : 0) : sum / samples;
    }
  }
}

// Inputs: x[N, C, H, W], regions[R, 4], their batches[R].
Lowering lower_roi_align(const LowerContext& context) {
  const RoiAlign how{context.int_attribute("output_height", 1),
                     context.int_attribute("output_width", 1),
                     context.int_attribute("sampling_ratio", 0),
                     context.float_attribute("spatial_scale", 1),
                     context.string_attribute("coordinate_transformation_mode", "half_pixel") == "half_pixel",
                     context.string_attribute("mode", "avg") == "max"};
  TORCH_CHECK(context.rank(0) == 4 && context.rank(1) == 2, "RoiAlign of ", context.meta(0).sizes(), " and ",
              context.meta(1).sizes());
  return computed(context.dtype(0), {context.meta(1).size(0), context.meta(0).size(1), how.height, how.width},
                  [how](const Args& args) {
                    const at::Tensor x = args.in(0).cpu().to(at::kDouble),
                                     rois = args.in(1).cpu().to(at::kDouble).contiguous(),
                                     batches = args.in(2).cpu().to(at::kLong);
                    at::Tensor y = at::zeros(args.out().sizes(), x.options());
                    const auto from = x.accessor<double, 4>();
                    auto to = y.accessor<double, 4>();
                    for (std::int64_t r = 0; r < rois.size(0); ++r) {
                      const std::int64_t batch = batches.select(0, r).item().toLong();
                      TORCH_CHECK_INDEX(batch >= 0 && batch < x.size(0), "batch ", batch, " of ", x.size(0));
                      for (std::int64_t c = 0; c < x.size(1); ++c)
                        align(how, rois.const_data_ptr<double>() + 4 * r, from[batch][c], to[r][c]);
                    }
                    args.out().copy_(y);
                  });
}

// x sampled where a kernel element reads once its offsets [N, 2, oh, ow] are added: [N, C, oh, ow].
at::Tensor sampled(const at::Tensor& x, const at::Tensor& offset, double row, double column,
                   const Windows& windows) {
  const auto places = [&](std::size_t dim, double first) {
    const at::Tensor at =
        at::arange(windows.positions[dim], x.options().dtype(at::kLong)).to(x.scalar_type());
    return at.mul(static_cast<double>(windows.strides[dim]))
        .add(first - static_cast<double>(windows.begin[dim]));
  };
  const auto normalized = [](const at::Tensor& at, std::int64_t size) {
    return at.mul(2).add(1).div(static_cast<double>(size)).sub(1);
  };
  const at::Tensor y = offset.select(1, 0).add(places(0, row).unsqueeze(1)),
                   xs = offset.select(1, 1).add(places(1, column));
  const at::Tensor grid = at::stack({normalized(xs, x.size(3)), normalized(y, x.size(2))}, -1);
  return at::grid_sampler(x, grid, /*bilinear*/ 0, /*zeros*/ 0, /*align_corners=*/false);
}

struct Deform {
  Windows windows;
  std::int64_t group, offset_group;
};

// in: x, weight[M, C / group, kh, kw], offsets[N, offset groups * kh * kw * 2, oh, ow], bias?, mask?.
at::Tensor deform_convolve(const Deform& how, const Tensors& in) {
  const std::int64_t kh = how.windows.kernel[0], kw = how.windows.kernel[1], n = in[0].size(0),
                     channels = in[0].size(1);
  const std::int64_t oh = how.windows.positions[0], ow = how.windows.positions[1];
  const at::Tensor offsets = in[2].view({n, how.offset_group, kh * kw, 2, oh, ow});
  const bool masked = in.size() > 4 && in[4].defined();
  Tensors groups;
  for (std::int64_t g = 0; g < how.offset_group; ++g) {
    const at::Tensor x = in[0].chunk(how.offset_group, 1)[static_cast<std::size_t>(g)];
    Tensors columns;
    for (std::int64_t k = 0; k < kh * kw; ++k) {
      at::Tensor column = sampled(x, offsets.select(1, g).select(1, k),
                                  static_cast<double>(k / kw * how.windows.dilations[0]),
                                  static_cast<double>(k % kw * how.windows.dilations[1]), how.windows);
      if (masked)
        column = column.mul(
            in[4].view({n, how.offset_group, kh * kw, oh, ow}).select(1, g).select(1, k).unsqueeze(1));
      columns.push_back(column);
    }
    groups.push_back(at::stack(columns, 2));  // [N, channels of the group, kh * kw, oh, ow]
  }
  const at::Tensor columns = at::cat(groups, 1).view({n, how.group, channels / how.group * kh * kw, oh * ow});
  const at::Tensor weight = in[1].view({1, how.group, in[1].size(0) / how.group, -1});
  const at::Tensor y = weight.matmul(columns).reshape({n, in[1].size(0), oh, ow});
  return in.size() > 3 && in[3].defined() ? y.add(along_axis(in[3], 4, 1)) : y;
}

Lowering lower_deform_conv(const LowerContext& context) {
  TORCH_CHECK_NOT_IMPLEMENTED(context.rank(0) == 4, "DeformConv of rank ", context.rank(0));
  const Sizes x = context.sizes(0), w = context.sizes(1);
  const Deform how{windows_of(context, {x[2], x[3]}, Sizes{w[2], w[3]}), context.int_attribute("group", 1),
                   context.int_attribute("offset_group", 1)};
  const Sizes sizes{x[0], w[0], how.windows.positions[0], how.windows.positions[1]};
  return computed(context.dtype(0), sizes, [how, inputs = context.num_inputs()](const Args& args) {
    Tensors in;
    // In double: coordinates are scaled to [-1, 1] and back.
    for (std::size_t i = 0; i < inputs; ++i)
      in.push_back(args.in(i).defined() ? args.in(i).to(at::kDouble) : at::Tensor());
    args.out().copy_(deform_convolve(how, in));
  });
}

}  // namespace

REKINDLE_OP("", "DeformConv", lower_deform_conv);
REKINDLE_OP("", "NonMaxSuppression", lower_non_max_suppression);
REKINDLE_OP("", "RoiAlign", lower_roi_align);

}  // namespace rekindle::session
