// Pools: a reduction over sliding windows. Global ones: over all of the spatial dimensions.
#include <ATen/ops/arange.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "session/ops/window.h"

namespace rekindle::session {
namespace {

Sizes spatial_of(const LowerContext& context, std::size_t i = 0) {
  const Sizes sizes = context.sizes(i);
  TORCH_CHECK(sizes.size() >= 3, "input ", i, " must be [N, C, spatial...], not ", context.meta(i).sizes());
  return {sizes.begin() + 2, sizes.end()};
}

Sizes pooled_sizes(const LowerContext& context, const Windows& windows) {
  Sizes sizes{context.meta(0).size(0), context.meta(0).size(1)};
  sizes.insert(sizes.end(), windows.positions.begin(), windows.positions.end());
  return sizes;
}

// [N, C, positions..., elements of a window].
at::Tensor windows_in_rows(const at::Tensor& padded, const Windows& windows) {
  return slide(padded, windows).flatten(2 + static_cast<std::int64_t>(windows.kernel.size()));
}

at::Scalar least(at::ScalarType type) {
  if (at::isFloatingType(type)) return -INFINITY;
  return type == at::kByte ? 0 : -(std::int64_t{1} << (8 * c10::elementSize(type) - 1));
}

// On the CPU: the number of each spatial element, as MaxPool's second output gives it:
// row-major, or column-major (storage_order).
at::Tensor numbers_of(at::IntArrayRef sizes, bool column_major) {
  const at::IntArrayRef spatial = sizes.slice(2);
  const std::int64_t count = c10::multiply_integers(spatial);
  at::Tensor numbers = at::arange(count);
  if (column_major) {
    Sizes turned(spatial.rbegin(), spatial.rend()), axes(spatial.size());
    std::iota(axes.rbegin(), axes.rend(), std::int64_t{0});
    numbers = numbers.view(turned).permute(axes).contiguous();
  }
  Sizes wide{1, 1};
  wide.insert(wide.end(), spatial.begin(), spatial.end());
  // Indices run on through the planes of all channels.
  return numbers.view(wide).expand(sizes).add(at::arange(sizes[0] * sizes[1]).mul(count).view([&] {
    Sizes planes(sizes.size(), 1);
    planes[0] = sizes[0];
    planes[1] = sizes[1];
    return planes;
  }()));
}

// Outputs: the maxima, and where they are in the whole input.
Lowering lower_max_pool(const LowerContext& context) {
  const Windows windows = windows_of(context, spatial_of(context));
  const bool column_major = context.int_attribute("storage_order", 0) != 0,
             indices = context.num_outputs() > 1;
  const Sizes sizes = pooled_sizes(context, windows);
  Lowering lowering;
  lowering.outputs = {{context.dtype(0), sizes, {}}};
  if (indices) lowering.outputs.push_back({at::kLong, sizes, {}});
  lowering.kernel = [windows, column_major, indices](const Args& args) {
    const at::Tensor& x = args.in(0);
    const Sizes extra = windows.overhang(x.sizes().slice(2));
    const at::Tensor rows = windows_in_rows(pad_spatial(x, windows, least(x.scalar_type()), extra), windows);
    const at::Tensor place = rows.argmax(-1, /*keepdim=*/true);
    args.out(0).copy_(rows.gather(-1, place).squeeze(-1));
    if (!indices) return;
    const at::Tensor numbers =
        pad_spatial(numbers_of(x.sizes(), column_major).to(x.device()), windows, 0, extra);
    args.out(1).copy_(windows_in_rows(numbers, windows).gather(-1, place).squeeze(-1));
  };
  return lowering;
}

Lowering lower_average_pool(const LowerContext& context) {
  const Windows windows = windows_of(context, spatial_of(context));
  const bool count_pads = context.int_attribute("count_include_pad", 0) != 0;
  return computed(context.dtype(0), pooled_sizes(context, windows), [windows, count_pads](const Args& args) {
    const at::Tensor& x = args.in(0);
    const Sizes extra = windows.overhang(x.sizes().slice(2)), none(extra.size(), 0);
    const at::Tensor sums = windows_in_rows(pad_spatial(x, windows, 0, extra), windows).sum(-1);
    // What ceil_mode lets windows reach beyond the padding counts for nothing.
    at::Tensor ones =
        pad_spatial(at::ones_like(x.narrow(0, 0, 1).narrow(1, 0, 1)), windows, count_pads ? 1 : 0, none);
    Windows beyond = windows;
    beyond.begin = none;
    beyond.end = none;
    const at::Tensor counts = windows_in_rows(pad_spatial(ones, beyond, 0, extra), windows).sum(-1);
    args.out().copy_(sums.div(counts));
  });
}

Lowering lower_lp_pool(const LowerContext& context) {
  const Windows windows = windows_of(context, spatial_of(context));
  return computed(context.dtype(0), pooled_sizes(context, windows),
                  [windows, p = context.int_attribute("p", 2)](const Args& args) {
                    const Sizes extra = windows.overhang(args.in(0).sizes().slice(2));
                    args.out().copy_(at::linalg_vector_norm(
                        windows_in_rows(pad_spatial(args.in(0), windows, 0, extra), windows), p, {-1}));
                  });
}

template <typename Reduce>
Lowering global_pool(const LowerContext& context, Reduce reduce) {
  Sizes sizes = context.sizes(0), axes(sizes.size() - 2);
  std::fill(sizes.begin() + 2, sizes.end(), 1);
  std::iota(axes.begin(), axes.end(), std::int64_t{2});
  return computed(context.dtype(0), sizes,
                  [axes, reduce](const Args& args) { args.out().copy_(reduce(args.in(0), axes)); });
}

Lowering lower_global_average_pool(const LowerContext& context) {
  return global_pool(context, [](const at::Tensor& x, const Sizes& axes) { return x.mean(axes, true); });
}

Lowering lower_global_max_pool(const LowerContext& context) {
  return global_pool(context, [](const at::Tensor& x, const Sizes& axes) { return x.amax(axes, true); });
}

Lowering lower_global_lp_pool(const LowerContext& context) {
  const std::int64_t p = context.int_attribute("p", 2);
  return global_pool(context, [p](const at::Tensor& x, const Sizes& axes) {
    return at::linalg_vector_norm(x, p, axes, true);
  });
}

// Inputs: x, indices into the whole result (as MaxPool gives them), its shape?.
Lowering lower_max_unpool(const LowerContext& context) {
  const Sizes spatial = spatial_of(context), kernel = context.node().ints_attribute("kernel_shape", {});
  const Sizes strides = context.node().ints_attribute("strides", Sizes(kernel.size(), 1));
  const Sizes pads = context.node().ints_attribute("pads", Sizes(2 * kernel.size(), 0));
  TORCH_CHECK(kernel.size() == spatial.size(), "MaxUnpool needs a kernel_shape for ", spatial.size(),
              " dimensions");
  Sizes sizes{context.meta(0).size(0), context.meta(0).size(1)};
  for (std::size_t i = 0; i < spatial.size(); ++i) {
    sizes.push_back((spatial[i] - 1) * strides.at(i) + kernel[i] - pads.at(i) - pads.at(i + spatial.size()));
  }
  const Sizes wanted = context.has(2) ? context.ints(2) : sizes;
  return computed(context.dtype(0), wanted, [sizes](const Args& args) {
    // The indices are those of the pool's input, whatever shape is asked for.
    at::Tensor whole = at::zeros({product(sizes)}, args.in(0).options());
    whole.scatter_(0, args.in(1).reshape({-1}), args.in(0).reshape({-1}));
    at::Tensor corner = args.out().zero_();
    for (std::size_t i = 0; i < sizes.size(); ++i)
      corner = corner.narrow(static_cast<std::int64_t>(i), 0, sizes[i]);
    corner.copy_(whole.view(sizes));
  });
}

}  // namespace

REKINDLE_OP("", "AveragePool", lower_average_pool);
REKINDLE_OP("", "GlobalAveragePool", lower_global_average_pool);
REKINDLE_OP("", "GlobalLpPool", lower_global_lp_pool);
REKINDLE_OP("", "GlobalMaxPool", lower_global_max_pool);
REKINDLE_OP("", "LpPool", lower_lp_pool);
REKINDLE_OP("", "MaxPool", lower_max_pool);
REKINDLE_OP("", "MaxUnpool", lower_max_unpool);

}  // namespace rekindle::session
