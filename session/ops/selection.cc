// Ops that pick elements by their values: order, uniqueness, conditions. Most
// results have sizes that depend on data.
#include <ATen/ops/_unique2.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/unique_dim.h>
#include <ATen/ops/where.h>

#include "session/ops/unsigned.h"
#include "session/ops/wrapped.h"

namespace rekindle::session {
namespace {

Lowering lower_non_zero(const LowerContext& context) {
  return functional(
      context, [](const Tensors& in) -> Tensors { return {at::nonzero(in[0]).t().contiguous()}; },
      /*sized_by_data=*/true);
}

Lowering lower_compress(const LowerContext& context) {
  const bool flat = context.node().attribute("axis") == nullptr;
  const std::int64_t axis = flat ? 0 : context.axis(context.int_attribute("axis", 0), context.rank(0));
  return functional(
      context,
      [flat, axis](const Tensors& in) -> Tensors {
        const at::Tensor x = flat ? in[0].reshape({-1}) : in[0];
        return {x.index_select(axis, at::nonzero(in[1]).reshape({-1}))};
      },
      /*sized_by_data=*/true);
}

// As PyTorch can sort and compare it, in the same order.
at::Tensor comparable(const at::Tensor& x) {
  if (x.scalar_type() == at::kUInt64) return widened(x).bitwise_xor(std::numeric_limits<std::int64_t>::min());
  return is_wide_unsigned(x.scalar_type()) ? widened(x) : x;
}

// Outputs: values, indices. Of equal elements, the one with the lower index comes first.
Lowering lower_top_k(const LowerContext& context) {
  const std::int64_t axis = context.axis(context.int_attribute("axis", -1), context.rank(0)),
                     k = context.ints(1).at(0);
  const bool largest = context.int_attribute("largest", 1) != 0;
  Sizes sizes = context.sizes(0);
  TORCH_CHECK(k >= 0 && k <= sizes[static_cast<std::size_t>(axis)], "TopK of ", k, " among ",
              sizes[static_cast<std::size_t>(axis)]);
  sizes[static_cast<std::size_t>(axis)] = k;
  Lowering lowering;
  lowering.outputs = {{context.dtype(0), sizes, {}}, {at::kLong, sizes, {}}};
  lowering.kernel = [axis, k, largest](const Args& args) {
    const at::Tensor order =
        std::get<1>(at::sort(comparable(args.in(0)), /*stable=*/true, axis, largest)).narrow(axis, 0, k);
    if (is_wide_unsigned(args.in(0).scalar_type())) {
      narrow_into(args.out(0), widened(args.in(0)).gather(axis, order));
    } else {
      args.out(0).copy_(args.in(0).gather(axis, order));
    }
    args.out(1).copy_(order);
  };
  return lowering;
}

// The first position of each of `count` classes that `inverse` tells.
at::Tensor first_positions(const at::Tensor& inverse, std::int64_t count) {
  const at::Tensor first = at::full({count}, inverse.numel(), inverse.options());
  return first.scatter_reduce(0, inverse, at::arange(inverse.numel(), inverse.options()), "amin",
                              /*include_self=*/true);
}

// Outputs: y, where each first occurs, which of y each element is, how often each occurs.
Tensors unique(at::Tensor x, std::optional<std::int64_t> axis, bool sorted) {
  const at::ScalarType type = x.scalar_type();
  if (type == at::kBFloat16 || type == at::kHalf) x = x.to(at::kFloat);
  TORCH_CHECK_NOT_IMPLEMENTED(!is_wide_unsigned(type), "Unique of ", type);
  if (!axis) x = x.reshape({-1});
  auto [y, inverse, counts] =
      at::unique_dim(x, axis.value_or(0), /*sorted=*/true, /*return_inverse=*/true, /*return_counts=*/true);
  at::Tensor first = first_positions(inverse, counts.numel());
  if (!sorted) {
    const at::Tensor order = first.argsort();
    y = y.index_select(axis.value_or(0), order);
    first = first.index_select(0, order);
    counts = counts.index_select(0, order);
    inverse = order.argsort().index_select(0, inverse);
  }
  return {y.to(type), first, inverse, counts};
}

Lowering lower_unique(const LowerContext& context) {
  std::optional<std::int64_t> axis;
  if (context.node().attribute("axis") != nullptr)
    axis = context.axis(context.int_attribute("axis", 0), context.rank(0));
  const bool sorted = context.int_attribute("sorted", 1) != 0;
  return functional(
      context, [axis, sorted](const Tensors& in) { return unique(in[0], axis, sorted); },
      /*sized_by_data=*/true);
}

// Inputs: x, lengths per batch.
Lowering lower_reverse_sequence(const LowerContext& context) {
  const std::int64_t batch_axis = context.int_attribute("batch_axis", 1),
                     time_axis = context.int_attribute("time_axis", 0);
  TORCH_CHECK(batch_axis + time_axis == 1 && context.rank(0) >= 2,
              "ReverseSequence needs the first two dimensions");
  return computed(context.dtype(0), context.sizes(0), [batch_axis](const Args& args) {
    const at::Tensor x = args.in(0).movedim(batch_axis, 0);  // [batch, time, ...]
    const at::Tensor time = at::arange(x.size(1), x.options().dtype(at::kLong)).unsqueeze(0),
                     lengths = args.in(1).to(at::kLong).unsqueeze(1);
    const at::Tensor from = at::where(time.lt(lengths), lengths.sub(1).sub(time), time);
    at::Tensor out = args.out().movedim(batch_axis, 0);
    for (std::int64_t b = 0; b < x.size(0); ++b)
      out.select(0, b).copy_(x.select(0, b).index_select(0, from.select(0, b)));
  });
}

}  // namespace

REKINDLE_OP("", "Compress", lower_compress);
REKINDLE_OP("", "NonZero", lower_non_zero);
REKINDLE_OP("", "ReverseSequence", lower_reverse_sequence);
REKINDLE_OP("", "TopK", lower_top_k);
REKINDLE_OP("", "Unique", lower_unique);

}  // namespace rekindle::session
