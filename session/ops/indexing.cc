// Lookups by index and their gradients. ONNX allows negative indices; PyTorch's kernels mostly do not.
#include <ATen/ops/embedding.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/index_select.h>

#include "kernels/embedding_gradient.h"
#include "session/ops/wrapped.h"

namespace rekindle::session {
namespace {

Lowering lower_embedding(const LowerContext& context) {
  Sizes sizes = context.sizes(1);
  sizes.push_back(context.meta(0).size(1));
  return computed(context.dtype(0), sizes, [](const Args& args) {
    at::Tensor out = args.out().view({-1, args.in(0).size(1)});
    at::index_select_out(out, args.in(0), 0, args.in(1).reshape({-1}));
  });
}

// Inputs: dy, indices, weight*, base?. The result takes over the memory of a base that dies here.
Lowering lower_embedding_gradient(const LowerContext& context) {
  const bool base = context.has(3);
  const kernels::EmbeddingGradientOptions options{context.int_attribute("padding_idx", -1),
                                                  /*accumulate=*/base};
  Lowering lowering = computed(context.dtype(0), context.sizes(2), [options, base](const Args& args) {
    if (base) begin_with(args, 3);
    kernels::embedding_gradient(args.in(0).contiguous(), args.in(1).contiguous(), options, args.out());
  });
  if (base) lowering.in_place = {3};
  return lowering;
}

Lowering lower_gather(const LowerContext& context) {
  const Sizes data = context.sizes(0), indices = context.sizes(1);
  const std::int64_t axis = context.axis(context.int_attribute("axis", 0), context.rank(0));
  Sizes sizes(data.begin(), data.begin() + axis);
  sizes.insert(sizes.end(), indices.begin(), indices.end());
  sizes.insert(sizes.end(), data.begin() + axis + 1, data.end());
  const std::int64_t length = data[static_cast<std::size_t>(axis)];
  if (context.is_constant(1) && indices.empty()) {
    const std::int64_t at = context.ints(1).at(0), positive = at < 0 ? at + length : at;
    TORCH_CHECK_INDEX(positive >= 0 && positive < length, "Gather index ", at, " is out of range for size ",
                      length);
    Lowering lowering = computed(context.dtype(0), sizes, [axis, positive](const Args& args) {
      args.out().copy_(args.in(0).select(axis, positive));
    });
    lowering.views.push_back([axis, positive](const at::Tensor& x) { return x.select(axis, positive); });
    return lowering;
  }
  return computed(context.dtype(0), sizes, [axis, length](const Args& args) {
    const at::Tensor flat = wrapped(args.in(1), length).reshape({-1});
    Sizes flat_sizes = args.in(0).sizes().vec();
    flat_sizes[static_cast<std::size_t>(axis)] = flat.numel();
    at::Tensor out = args.out().view(flat_sizes);
    at::index_select_out(out, args.in(0), axis, flat);
  });
}

// Of one place that is known.
Lowering lower_select_gradient(const LowerContext& context, std::int64_t axis, std::int64_t length) {
  const bool base = context.has(3);
  const std::int64_t at = context.ints(1).at(0), place = at < 0 ? at + length : at;
  return computed(
      context.dtype(0), context.sizes(2),
      [axis, place, base](const Args& args) {
        if (base) {
          begin_with(args, 3);
          args.out().select(axis, place).add_(args.in(0));
        } else {
          args.out().zero_();
          args.out().select(axis, place).copy_(args.in(0));
        }
      },
      base ? std::vector<std::size_t>{3} : std::vector<std::size_t>());
}

// Inputs: dy, indices, data*, base?. What comes to one place is added up before the base is, as in eager.
Lowering lower_gather_gradient(const LowerContext& context) {
  const std::int64_t axis = context.axis(context.int_attribute("axis", 0), context.rank(2));
  const std::int64_t length = context.meta(2).size(axis);
  if (context.is_constant(1) && context.rank(1) == 0) return lower_select_gradient(context, axis, length);
  const bool base = context.has(3);
  Lowering lowering = computed(context.dtype(0), context.sizes(2), [axis, length, base](const Args& args) {
    const at::Tensor flat = wrapped(args.in(1), length).reshape({-1});
    at::Tensor sum = args.out(base ? 1 : 0);
    Sizes flat_sizes = sum.sizes().vec();
    flat_sizes[static_cast<std::size_t>(axis)] = flat.numel();
    sum.zero_().index_add_(axis, flat, args.in(0).reshape(flat_sizes));
    if (!base) return;
    begin_with(args, 3);
    args.out().add_(sum);
  });
  if (base) {
    lowering.scratch = {{context.dtype(0), context.sizes(2), {}}};
    lowering.in_place = {3};
  }
  return lowering;
}

Lowering lower_gather_elements(const LowerContext& context) {
  const std::int64_t axis = context.axis(context.int_attribute("axis", 0), context.rank(0));
  const std::int64_t length = context.meta(0).size(axis);
  return computed(context.dtype(0), context.sizes(1), [axis, length](const Args& args) {
    at::gather_out(args.out(), args.in(0), axis, wrapped(args.in(1), length));
  });
}

}  // namespace

REKINDLE_OP("", "Gather", lower_gather);
REKINDLE_OP("", "GatherElements", lower_gather_elements);
REKINDLE_OP("rekindle", "Embedding", lower_embedding);
REKINDLE_OP("rekindle", "EmbeddingGradient", lower_embedding_gradient);
REKINDLE_OP("rekindle", "GatherGradient", lower_gather_gradient);

}  // namespace rekindle::session
