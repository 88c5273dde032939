// Ops that rearrange elements. Most are views and cost nothing at run time.
#include <ATen/TensorUtils.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/repeat.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tril.h>
#include <ATen/ops/triu.h>

#include <algorithm>
#include <numeric>

#include "session/lower/op.h"

namespace rekindle::session {
namespace {

// x seen with other sizes, or undefined when its strides do not allow that.
View reshaped(Sizes sizes) {
  return [sizes = std::move(sizes)](const at::Tensor& x) {
    const auto strides = at::detail::computeStride(x.sizes(), x.strides(), sizes);
    return strides ? x.as_strided(sizes, *strides, x.storage_offset()) : at::Tensor();
  };
}

Lowering reshape_to(const LowerContext& context, Sizes sizes) {
  TORCH_CHECK(product(sizes) == context.meta(0).numel(), "cannot reshape ", context.meta(0).sizes(), " to ",
              at::IntArrayRef(sizes));
  View view = reshaped(sizes);
  return viewed(context, std::move(sizes), std::move(view));
}

Lowering lower_reshape(const LowerContext& context) {
  Sizes wanted = context.ints(1);
  const Sizes sizes = context.sizes(0);
  const bool allow_zero = context.int_attribute("allowzero", 0) != 0;
  std::int64_t known = 1, unknown = -1;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] == 0 && !allow_zero) {
      TORCH_CHECK(i < sizes.size(), "Reshape keeps dimension ", i, " of a tensor of rank ", sizes.size());
      wanted[i] = sizes[i];
    }
    if (wanted[i] == -1) {
      TORCH_CHECK(unknown < 0, "Reshape with two inferred dimensions");
      unknown = static_cast<std::int64_t>(i);
    } else {
      known *= wanted[i];
    }
  }
  if (unknown >= 0)
    wanted[static_cast<std::size_t>(unknown)] = known == 0 ? 0 : context.meta(0).numel() / known;
  return reshape_to(context, std::move(wanted));
}

Lowering lower_reshape_like(const LowerContext& context) { return reshape_to(context, context.sizes(1)); }

Lowering lower_flatten(const LowerContext& context) {
  const Sizes sizes = context.sizes(0);
  std::int64_t axis = context.int_attribute("axis", 1);
  if (axis < 0) axis += static_cast<std::int64_t>(sizes.size());
  TORCH_CHECK(axis >= 0 && axis <= static_cast<std::int64_t>(sizes.size()), "axis ", axis,
              " is out of range for rank ", sizes.size());
  const Sizes head(sizes.begin(), sizes.begin() + axis), tail(sizes.begin() + axis, sizes.end());
  return reshape_to(context, {product(head), product(tail)});
}

Lowering lower_transpose(const LowerContext& context) {
  const Sizes sizes = context.sizes(0);
  Sizes perm(sizes.size());
  std::iota(perm.rbegin(), perm.rend(), std::int64_t{0});
  perm = context.node().ints_attribute("perm", perm);
  Sizes out;
  TORCH_CHECK(perm.size() == sizes.size(), "perm has ", perm.size(), " entries for rank ", sizes.size());
  for (const std::int64_t axis : perm)
    out.push_back(sizes[static_cast<std::size_t>(context.axis(axis, context.rank(0)))]);
  return viewed(context, out, [perm](const at::Tensor& x) { return x.permute(perm); });
}

Lowering lower_unsqueeze(const LowerContext& context) {
  Sizes axes = context.ints_or_attribute(1, "axes").value_or(Sizes{});
  const auto rank = context.rank(0) + static_cast<std::int64_t>(axes.size());
  for (std::int64_t& axis : axes) axis = context.axis(axis, rank);
  std::sort(axes.begin(), axes.end());
  Sizes sizes = context.sizes(0);
  for (const std::int64_t axis : axes) sizes.insert(sizes.begin() + axis, 1);
  return viewed(context, sizes, [axes](at::Tensor x) {
    for (const std::int64_t axis : axes) x = x.unsqueeze(axis);
    return x;
  });
}

Lowering lower_squeeze(const LowerContext& context) {
  const Sizes sizes = context.sizes(0);
  std::optional<Sizes> axes = context.ints_or_attribute(1, "axes");
  std::vector<bool> dropped(sizes.size(), false);
  if (axes) {
    for (const std::int64_t axis : *axes) {
      const auto at = static_cast<std::size_t>(context.axis_or_scalar(axis, context.rank(0)));
      if (at >= sizes.size()) continue;  // of a 0-dim tensor
      TORCH_CHECK(sizes[at] == 1, "Squeeze of dimension ", at, " of size ", sizes[at]);
      dropped[at] = true;
    }
  } else {
    for (std::size_t i = 0; i < sizes.size(); ++i) dropped[i] = sizes[i] == 1;
  }
  Sizes kept;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (!dropped[i]) kept.push_back(sizes[i]);
  }
  return reshape_to(context, std::move(kept));
}

Lowering expand_to(const LowerContext& context, Sizes sizes) {
  Lowering lowering =
      computed(context.dtype(0), sizes, [](const Args& args) { args.out().copy_(args.in(0)); });
  lowering.views.push_back([sizes = std::move(sizes)](const at::Tensor& x) { return x.expand(sizes); });
  return lowering;
}

Lowering lower_expand(const LowerContext& context) {
  return expand_to(context, broadcast_sizes(context.sizes(0), context.ints(1)));
}

Lowering lower_expand_like(const LowerContext& context) { return expand_to(context, context.sizes(1)); }

// x summed down to the sizes it was broadcast from.
Lowering lower_sum_to_size_of(const LowerContext& context) {
  const Sizes from = context.sizes(0), to = context.sizes(1);
  if (from == to) return reshape_to(context, to);
  const std::size_t lead = from.size() - to.size();
  Sizes axes;
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (i < lead || (to[i - lead] == 1 && from[i] != 1)) axes.push_back(static_cast<std::int64_t>(i));
  }
  if (axes.empty()) return reshape_to(context, to);
  return computed(context.dtype(0), to, [axes](const Args& args) {
    Sizes kept = args.in(0).sizes().vec();
    for (const std::int64_t axis : axes) kept[static_cast<std::size_t>(axis)] = 1;
    at::Tensor out = args.out().view(kept);
    at::sum_out(out, args.in(0), axes, /*keepdim=*/true);
  });
}

Lowering lower_concat(const LowerContext& context) {
  Sizes sizes = context.sizes(0);
  const std::int64_t axis = context.axis(context.int_attribute("axis", 0), context.rank(0));
  const std::size_t count = context.num_inputs();
  for (std::size_t i = 1; i < count; ++i) sizes[static_cast<std::size_t>(axis)] += context.meta(i).size(axis);
  if (!context.device().is_cpu()) {  // in one launch
    return computed(context.dtype(0), sizes, [axis, count](const Args& args) {
      at::cat_out(args.out(), inputs_of(args, count), axis);
    });
  }
  return computed(context.dtype(0), sizes, [axis, count](const Args& args) {
    std::int64_t start = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t length = args.in(i).size(axis);
      args.out().narrow(axis, start, length).copy_(args.in(i));
      start += length;
    }
  });
}

// One view per part.
Lowering split_into(const LowerContext& context, std::int64_t axis, const Sizes& lengths) {
  Lowering lowering;
  std::int64_t start = 0;
  for (const std::int64_t length : lengths) {
    Sizes sizes = context.sizes(0);
    sizes[static_cast<std::size_t>(axis)] = length;
    lowering.outputs.push_back({context.dtype(0), sizes, std::nullopt});
    lowering.views.push_back(
        [axis, start, length](const at::Tensor& x) { return x.narrow(axis, start, length); });
    start += length;
  }
  TORCH_CHECK(start == context.meta(0).size(axis), "the parts of a Split add up to ", start, ", not to ",
              context.meta(0).size(axis));
  return lowering;
}

Lowering lower_split(const LowerContext& context) {
  const std::int64_t axis = context.axis(context.int_attribute("axis", 0), context.rank(0));
  std::optional<Sizes> lengths = context.ints_or_attribute(1, "split");
  if (!lengths) {
    const auto parts = static_cast<std::int64_t>(context.num_outputs());
    const std::int64_t total = context.meta(0).size(axis), each = (total + parts - 1) / parts;
    lengths.emplace();
    for (std::int64_t i = 0; i < parts; ++i)
      lengths->push_back(std::clamp<std::int64_t>(total - i * each, 0, each));
  }
  TORCH_CHECK(lengths->size() == context.num_outputs(), "Split has ", lengths->size(), " lengths and ",
              context.num_outputs(), " outputs");
  return split_into(context, axis, *lengths);
}

Lowering lower_concat_gradient(const LowerContext& context) {
  const std::int64_t axis = context.axis(context.int_attribute("axis", 0), context.rank(0));
  Sizes lengths;
  for (std::size_t i = 1; i < context.num_inputs(); ++i) lengths.push_back(context.meta(i).size(axis));
  return split_into(context, axis, lengths);
}

Lowering lower_tile(const LowerContext& context) {
  const Sizes repeats = context.ints(1);
  Sizes sizes = context.sizes(0);
  for (std::size_t i = 0; i < sizes.size(); ++i) sizes[i] *= repeats.at(i);
  return computed(context.dtype(0), sizes,
                  [repeats](const Args& args) { at::repeat_out(args.out(), args.in(0), repeats); });
}

Lowering lower_trilu(const LowerContext& context) {
  const bool upper = context.int_attribute("upper", 1) != 0;
  const std::int64_t diagonal = context.has(1) ? context.ints(1).at(0) : 0;
  return computed(context.dtype(0), context.sizes(0), [upper, diagonal](const Args& args) {
    if (upper) {
      at::triu_out(args.out(), args.in(0), diagonal);
    } else {
      at::tril_out(args.out(), args.in(0), diagonal);
    }
  });
}

}  // namespace

REKINDLE_OP("", "Concat", lower_concat);
REKINDLE_OP("", "Expand", lower_expand);
REKINDLE_OP("", "Flatten", lower_flatten);
REKINDLE_OP("", "Reshape", lower_reshape);
REKINDLE_OP("", "Split", lower_split);
REKINDLE_OP("", "Squeeze", lower_squeeze);
REKINDLE_OP("", "Tile", lower_tile);
REKINDLE_OP("", "Transpose", lower_transpose);
REKINDLE_OP("", "Trilu", lower_trilu);
REKINDLE_OP("", "Unsqueeze", lower_unsqueeze);
REKINDLE_OP("rekindle", "ConcatGradient", lower_concat_gradient);
REKINDLE_OP("rekindle", "ExpandLike", lower_expand_like);
REKINDLE_OP("rekindle", "ReshapeLike", lower_reshape_like);
REKINDLE_OP("rekindle", "SumToSizeOf", lower_sum_to_size_of);
REKINDLE_OP("rekindle", "TriluGradient", lower_trilu);

}  // namespace rekindle::session
