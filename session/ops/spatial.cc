// Images: sampling on grids, blocks of pixels, columns of patches.
#include <ATen/ops/affine_grid_generator.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/grid_sampler.h>
#include <ATen/ops/zeros.h>

#include "session/ops/window.h"

namespace rekindle::session {
namespace {

Lowering lower_grid_sample(const LowerContext& context) {
  const std::string mode = context.string_attribute("mode", "linear"),
                    padding = context.string_attribute("padding_mode", "zeros");
  TORCH_CHECK(mode == "linear" || mode == "nearest" || mode == "cubic", "GridSample in mode '", mode, "'");
  TORCH_CHECK(padding == "zeros" || padding == "border" || padding == "reflection",
              "GridSample with padding '", padding, "'");
  TORCH_CHECK_NOT_IMPLEMENTED(context.rank(0) == 4 || (context.rank(0) == 5 && mode != "cubic"),
                              "GridSample in mode ", mode, " of rank ", context.rank(0));
  const std::int64_t mode_number = mode == "linear" ? 0 : mode == "nearest" ? 1 : 2;
  const std::int64_t padding_number = padding == "zeros" ? 0 : padding == "border" ? 1 : 2;
  const bool align = context.int_attribute("align_corners", 0) != 0;
  Sizes sizes{context.meta(0).size(0), context.meta(0).size(1)};
  const Sizes grid = context.sizes(1);
  sizes.insert(sizes.end(), grid.begin() + 1, grid.end() - 1);
  return computed(context.dtype(0), sizes, [mode_number, padding_number, align](const Args& args) {
    args.out().copy_(at::grid_sampler(args.in(0), args.in(1).to(args.in(0).scalar_type()), mode_number,
                                      padding_number, align));
  });
}

// Inputs: theta, size (N, C, [D], H, W).
Lowering lower_affine_grid(const LowerContext& context) {
  const Sizes size = context.ints(1);
  const bool align = context.int_attribute("align_corners", 0) != 0;
  TORCH_CHECK(size.size() == 4 || size.size() == 5, "AffineGrid of size ", at::IntArrayRef(size));
  Sizes sizes{size[0]};
  sizes.insert(sizes.end(), size.begin() + 2, size.end());
  sizes.push_back(static_cast<std::int64_t>(size.size()) - 2);
  return computed(context.dtype(0), sizes, [size, align](const Args& args) {
    args.out().copy_(at::affine_grid_generator(args.in(0), size, align));
  });
}

// [N, C, H, W] -> [N, C / b², H * b, W * b]. DCR: the block's position comes before the channel.
Lowering lower_depth_to_space(const LowerContext& context) {
  const std::int64_t b = context.int_attribute("blocksize", 1);
  const bool crd = context.string_attribute("mode", "DCR") == "CRD";
  const Sizes in = context.sizes(0);
  TORCH_CHECK(in.size() == 4 && b > 0 && in[1] % (b * b) == 0, "DepthToSpace of ", context.meta(0).sizes(),
              " by ", b);
  const std::int64_t channels = in[1] / (b * b);
  return computed(
      context.dtype(0), {in[0], channels, in[2] * b, in[3] * b}, [b, crd, channels](const Args& args) {
        const at::Tensor& x = args.in(0);
        const std::int64_t n = x.size(0), h = x.size(2), w = x.size(3);
        const at::Tensor y = crd ? x.reshape({n, channels, b, b, h, w}).permute({0, 1, 4, 2, 5, 3})
                                 : x.reshape({n, b, b, channels, h, w}).permute({0, 3, 4, 1, 5, 2});
        args.out().view({n, channels, h, b, w, b}).copy_(y);
      });
}

Lowering lower_space_to_depth(const LowerContext& context) {
  const std::int64_t b = context.int_attribute("blocksize", 1);
  const bool crd = context.string_attribute("mode", "DCR") == "CRD";
  const Sizes in = context.sizes(0);
  TORCH_CHECK(in.size() == 4 && b > 0 && in[2] % b == 0 && in[3] % b == 0, "SpaceToDepth of ",
              context.meta(0).sizes(), " by ", b);
  return computed(context.dtype(0), {in[0], in[1] * b * b, in[2] / b, in[3] / b}, [b, crd](const Args& args) {
    const at::Tensor& x = args.in(0);
    const std::int64_t n = x.size(0), c = x.size(1), h = x.size(2) / b, w = x.size(3) / b;
    const at::Tensor blocks = x.reshape({n, c, h, b, w, b});
    if (crd) {
      args.out().view({n, c, b, b, h, w}).copy_(blocks.permute({0, 1, 3, 5, 2, 4}));
    } else {
      args.out().view({n, b, b, c, h, w}).copy_(blocks.permute({0, 3, 5, 1, 2, 4}));
    }
  });
}

// Inputs: columns [N, C * patch, positions], image shape, block shape. Patches are added where they overlap.
Lowering lower_col2im(const LowerContext& context) {
  const Sizes image = context.ints(1), block = context.ints(2);
  const Windows windows = windows_of(context, image, block);
  const std::int64_t patch = product(block), positions = product(windows.positions);
  TORCH_CHECK(
      context.rank(0) == 3 && context.meta(0).size(1) % patch == 0 && context.meta(0).size(2) == positions,
      "Col2Im of ", context.meta(0).sizes(), " to ", at::IntArrayRef(image), " in blocks of ",
      at::IntArrayRef(block));
  Sizes sizes{context.meta(0).size(0), context.meta(0).size(1) / patch};
  sizes.insert(sizes.end(), image.begin(), image.end());
  return computed(context.dtype(0), sizes, [windows, image, patch, positions](const Args& args) {
    Sizes padded{args.out().size(0), args.out().size(1)}, plane{1, 1};
    for (std::size_t i = 0; i < image.size(); ++i)
      plane.push_back(image[i] + windows.begin[i] + windows.end[i]);
    padded.insert(padded.end(), plane.begin() + 2, plane.end());
    const auto rank = static_cast<std::int64_t>(image.size());
    const at::Tensor places =
        slide(at::arange(product(plane), args.out().options().dtype(at::kLong)).view(plane), windows)
            .reshape({positions, patch})
            .t()
            .reshape({-1});
    at::Tensor whole = at::zeros({padded[0], padded[1], product(plane)}, args.out().options());
    whole.index_add_(2, places, args.in(0).reshape({padded[0], padded[1], patch * positions}));
    whole = whole.view(padded);
    for (std::int64_t i = 0; i < rank; ++i)
      whole =
          whole.narrow(i + 2, windows.begin[static_cast<std::size_t>(i)], image[static_cast<std::size_t>(i)]);
    args.out().copy_(whole);
  });
}

}  // namespace

REKINDLE_OP("", "AffineGrid", lower_affine_grid);
REKINDLE_OP("", "Col2Im", lower_col2im);
REKINDLE_OP("", "DepthToSpace", lower_depth_to_space);
REKINDLE_OP("", "GridSample", lower_grid_sample);
REKINDLE_OP("", "SpaceToDepth", lower_space_to_depth);

}  // namespace rekindle::session
