// Slices with any steps, and their gradient. With positive steps they are views.
#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "session/lower/op.h"

namespace rekindle::session {
namespace {

// ONNX Slice, normalized: one (axis, start, end, step) per sliced dimension.
struct Range {
  std::int64_t axis, start, length, step;
};

std::vector<Range> ranges_of(const LowerContext& context, const Sizes& sizes, std::size_t first) {
  const Sizes starts = context.ints(first), ends = context.ints(first + 1);
  Sizes axes(starts.size()), steps(starts.size(), 1);
  std::iota(axes.begin(), axes.end(), std::int64_t{0});
  if (context.has(first + 2)) axes = context.ints(first + 2);
  if (context.has(first + 3)) steps = context.ints(first + 3);
  std::vector<Range> ranges;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const std::int64_t axis = context.axis(axes.at(i), static_cast<std::int64_t>(sizes.size())),
                       step = steps.at(i);
    TORCH_CHECK(step != 0, "Slice with step 0");
    const std::int64_t size = sizes[static_cast<std::size_t>(axis)];
    const auto clamp = [&](std::int64_t at) {
      return std::clamp<std::int64_t>(at < 0 ? at + size : at, step > 0 ? 0 : -1, step > 0 ? size : size - 1);
    };
    // An end before the beginning cannot be written for negative steps but as a very negative number.
    const std::int64_t start = clamp(starts[i]), end = clamp(ends.at(i));
    const std::int64_t span = step > 0 ? end - start + step - 1 : start - end - step - 1;
    ranges.push_back({axis, start, std::max<std::int64_t>(0, span / std::abs(step)), step});
  }
  return ranges;
}

at::Tensor sliced(const at::Tensor& x, const std::vector<Range>& ranges) {
  Sizes sizes = x.sizes().vec(), strides = x.strides().vec();
  std::int64_t offset = x.storage_offset();
  for (const Range& range : ranges) {
    const auto axis = static_cast<std::size_t>(range.axis);
    offset += range.length > 0 ? range.start * strides[axis] : 0;
    strides[axis] *= range.step;
    sizes[axis] = range.length;
  }
  return x.as_strided(sizes, strides, offset);
}

using OnSlice = void (*)(const at::Tensor& whole, const at::Tensor& part);
void read(const at::Tensor& whole, const at::Tensor& part) { part.copy_(whole); }
void write(const at::Tensor& whole, const at::Tensor& part) { whole.copy_(part); }
void add_part(const at::Tensor& whole, const at::Tensor& part) { whole.add_(part); }

// Calls on_slice with what the ranges take of `whole`, and with `part`. Negative steps have no ATen view:
// then with one slice after the other.
void for_slices(const at::Tensor& whole, const at::Tensor& part, const std::vector<Range>& ranges,
                OnSlice on_slice, std::size_t i = 0) {
  if (i == ranges.size()) return on_slice(whole, part);
  const Range& range = ranges[i];
  for (std::int64_t k = 0; k < range.length; ++k) {
    for_slices(whole.narrow(range.axis, range.start + k * range.step, 1), part.narrow(range.axis, k, 1),
               ranges, on_slice, i + 1);
  }
}

bool forward_only(const std::vector<Range>& ranges) {
  return std::all_of(ranges.begin(), ranges.end(), [](const Range& range) { return range.step > 0; });
}

Lowering lower_slice(const LowerContext& context) {
  const std::vector<Range> ranges = ranges_of(context, context.sizes(0), 1);
  Sizes sizes = context.sizes(0);
  for (const Range& range : ranges) sizes[static_cast<std::size_t>(range.axis)] = range.length;
  Lowering lowering = computed(context.dtype(0), sizes, [ranges](const Args& args) {
    for_slices(args.in(0), args.out(), ranges, read);
  });
  if (forward_only(ranges))
    lowering.views.push_back([ranges](const at::Tensor& x) { return sliced(x, ranges); });
  return lowering;
}

// Inputs: dy, data*, starts, ends, axes?, steps?, base?.
Lowering lower_slice_gradient(const LowerContext& context) {
  constexpr std::size_t kBase = 6;
  const std::vector<Range> ranges = ranges_of(context, context.sizes(1), 2);
  const bool base = context.has(kBase), view = forward_only(ranges);
  const OnSlice on_slice = base ? add_part : write;
  return computed(
      context.dtype(0), context.sizes(1),
      [ranges, base, view, on_slice](const Args& args) {
        base ? begin_with(args, kBase) : static_cast<void>(args.out().zero_());
        view ? on_slice(sliced(args.out(), ranges), args.in(0))
             : for_slices(args.out(), args.in(0), ranges, on_slice);
      },
      base ? std::vector<std::size_t>{kBase} : std::vector<std::size_t>());
}

}  // namespace

REKINDLE_OP("", "Slice", lower_slice);
REKINDLE_OP("rekindle", "SliceGradient", lower_slice_gradient);

}  // namespace rekindle::session
