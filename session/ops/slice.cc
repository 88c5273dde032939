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

// Negative steps have no ATen view: those elements are read one slice at a time.
void copy_slices(at::Tensor to, at::Tensor from, const std::vector<Range>& ranges, std::size_t i) {
  if (i == ranges.size()) {
    to.copy_(from);
    return;
  }
  const Range& range = ranges[i];
  for (std::int64_t k = 0; k < range.length; ++k) {
    copy_slices(to.narrow(range.axis, k, 1), from.narrow(range.axis, range.start + k * range.step, 1), ranges,
                i + 1);
  }
}

using Change = void (*)(const at::Tensor& to, const at::Tensor& from);
void copy_into(const at::Tensor& to, const at::Tensor& from) { to.copy_(from); }
void add_into(const at::Tensor& to, const at::Tensor& from) { to.add_(from); }

// The same the other way: to where they were read.
void change_slices(const at::Tensor& to, const at::Tensor& from, const std::vector<Range>& ranges,
                   std::size_t i, Change change) {
  if (i == ranges.size()) return change(to, from);
  const Range& range = ranges[i];
  for (std::int64_t k = 0; k < range.length; ++k) {
    change_slices(to.narrow(range.axis, range.start + k * range.step, 1), from.narrow(range.axis, k, 1),
                  ranges, i + 1, change);
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
    copy_slices(args.out(), args.in(0), ranges, 0);
  });
  if (forward_only(ranges))
    lowering.views.push_back([ranges](const at::Tensor& x) { return sliced(x, ranges); });
  return lowering;
}

// Inputs: dy, data*, starts, ends, axes?, steps?, base?.
Lowering lower_slice_gradient(const LowerContext& context) {
  constexpr std::size_t kBase = 6;
  const std::vector<Range> ranges = ranges_of(context, context.sizes(1), 2);
  const bool view = forward_only(ranges);
  if (context.has(kBase)) {
    return computed(context.dtype(0), context.sizes(1),
                    [ranges, view](const Args& args) {
                      begin_with(args, kBase);
                      view ? add_into(sliced(args.out(), ranges), args.in(0))
                           : change_slices(args.out(), args.in(0), ranges, 0, add_into);
                    },
                    {kBase});
  }
  return computed(context.dtype(0), context.sizes(1), [ranges, view](const Args& args) {
    args.out().zero_();
    view ? copy_into(sliced(args.out(), ranges), args.in(0))
         : change_slices(args.out(), args.in(0), ranges, 0, copy_into);
  });
}

}  // namespace

REKINDLE_OP("", "Slice", lower_slice);
REKINDLE_OP("rekindle", "SliceGradient", lower_slice_gradient);

}  // namespace rekindle::session
