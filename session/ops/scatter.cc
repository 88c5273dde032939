// Writes and reads at places that indices name: ScatterElements, ScatterND, GatherND, TensorScatter, OneHot.
#include <ATen/ops/arange.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "session/ops/wrapped.h"

namespace rekindle::session {
namespace {

// ATen's name of a reduction.
std::string_view reduce_name(const std::string& reduction) {
  if (reduction == "add") return "sum";
  if (reduction == "mul") return "prod";
  if (reduction == "max") return "amax";
  TORCH_CHECK_NOT_IMPLEMENTED(reduction == "min", "reduction ", reduction);
  return "amin";
}

Lowering lower_scatter_elements(const LowerContext& context) {
  const std::int64_t axis = context.axis(context.int_attribute("axis", 0), context.rank(0));
  const std::int64_t length = context.meta(0).size(axis);
  const std::string reduction = context.string_attribute("reduction", "none");
  if (reduction != "none" && reduction != "add") reduce_name(reduction);  // refuses what it does not know
  return computed(context.dtype(0), context.sizes(0),
                  [axis, length, reduction](const Args& args) {
                    const at::Tensor indices = wrapped(args.in(1), length);
                    args.out().copy_(args.in(0));
                    if (reduction == "add") {
                      args.out().scatter_add_(axis, indices, args.in(2));
                    } else if (reduction == "none") {
                      args.out().scatter_(axis, indices, args.in(2));
                    } else {
                      args.out().scatter_reduce_(axis, indices, args.in(2), reduce_name(reduction),
                                                 /*include_self=*/true);
                    }
                  },
                  {0});
}

// Tuples of indices (last dimension of `indices`) into the dimensions of
// `sizes` as numbers of the flattened ones.
at::Tensor flat_places(const at::Tensor& indices, const Sizes& sizes) {
  Sizes leading = indices.sizes().vec();
  leading.pop_back();
  at::Tensor places = at::zeros(leading, indices.options().dtype(at::kLong));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const at::Tensor index = wrapped(indices.select(-1, static_cast<std::int64_t>(i)), sizes[i]);
    TORCH_CHECK_INDEX(index.numel() == 0 || index.lt(sizes[i]).logical_and(index.ge(0)).all().item().toBool(),
                      "an index is out of range for size ", sizes[i]);
    places = places.mul(sizes[i]).add(index);
  }
  return places;
}

Lowering lower_scatter_nd(const LowerContext& context) {
  const std::string reduction = context.string_attribute("reduction", "none");
  if (reduction != "none" && reduction != "add") reduce_name(reduction);
  const Sizes sizes = context.sizes(0);
  const std::int64_t depth = context.meta(1).size(-1);
  TORCH_CHECK(depth <= context.rank(0), "ScatterND with ", depth, " indices into rank ", sizes.size());
  const Sizes outer(sizes.begin(), sizes.begin() + depth), inner(sizes.begin() + depth, sizes.end());
  return computed(context.dtype(0), sizes,
                  [outer, row = product(inner), reduction](const Args& args) {
                    const at::Tensor places = flat_places(args.in(1), outer).reshape({-1});
                    args.out().copy_(args.in(0));
                    at::Tensor out = args.out().view({product(outer), row});
                    const at::Tensor updates = args.in(2).reshape({places.numel(), row});
                    if (reduction == "none") {
                      out.index_copy_(0, places, updates);
                    } else if (reduction == "add") {
                      out.index_add_(0, places, updates);
                    } else {
                      out.index_reduce_(0, places, updates, reduce_name(reduction), /*include_self=*/true);
                    }
                  },
                  {0});
}

Lowering lower_gather_nd(const LowerContext& context) {
  const auto batch = static_cast<std::size_t>(context.int_attribute("batch_dims", 0));
  const Sizes sizes = context.sizes(0), indices = context.sizes(1);
  TORCH_CHECK(!indices.empty() && batch < indices.size() &&
                  batch + static_cast<std::size_t>(indices.back()) <= sizes.size(),
              "GatherND of ", context.meta(0).sizes(), " at ", context.meta(1).sizes());
  const auto begin = sizes.begin() + static_cast<std::ptrdiff_t>(batch);
  const Sizes batches(sizes.begin(), begin), outer(begin, begin + indices.back()),
      inner(begin + indices.back(), sizes.end());
  Sizes result(indices.begin(), indices.end() - 1);
  result.insert(result.end(), inner.begin(), inner.end());
  return computed(
      context.dtype(0), result, [count = product(batches), outer, row = product(inner)](const Args& args) {
        const at::Tensor rows = args.in(0).reshape({count * product(outer), row});
        at::Tensor places = flat_places(args.in(1), outer).reshape({count, -1});
        places =
            places.add(at::arange(count, places.options()).mul(product(outer)).unsqueeze(1)).reshape({-1});
        args.out().copy_(rows.index_select(0, places).view(args.out().sizes()));
      });
}

// Inputs: the cache, what is written along its sequence dimension, and where, per batch.
Lowering lower_tensor_scatter(const LowerContext& context) {
  const std::int64_t axis = context.axis(context.int_attribute("axis", -2), context.rank(0));
  const bool circular = context.string_attribute("mode", "linear") == "circular", given = context.has(2);
  TORCH_CHECK(axis > 0, "TensorScatter along the batch dimension");
  return computed(context.dtype(0), context.sizes(0), [axis, circular, given](const Args& args) {
    args.out().copy_(args.in(0));
    at::Tensor cache = args.out().movedim(axis, 1);
    const at::Tensor update = args.in(1).movedim(axis, 1);
    const std::int64_t length = update.size(1), most = cache.size(1);
    for (std::int64_t b = 0; b < cache.size(0); ++b) {
      const std::int64_t start = given ? args.in(2).select(0, b).item().toLong() : 0;
      TORCH_CHECK_INDEX(start >= 0 && (circular || start + length <= most), "writing ", length, " at ", start,
                        " of ", most);
      const at::Tensor places =
          at::arange(start, start + length, cache.options().dtype(at::kLong)).remainder(most);
      cache.select(0, b).index_copy_(0, places, update.select(0, b));
    }
  });
}

// Inputs: indices, depth, [off, on].
Lowering lower_one_hot(const LowerContext& context) {
  const std::int64_t depth = static_cast<std::int64_t>(context.constant(1).reshape({}).item().toDouble());
  const std::int64_t rank = context.rank(0), axis = context.axis(context.int_attribute("axis", -1), rank + 1);
  Sizes sizes = context.sizes(0), along(static_cast<std::size_t>(rank) + 1, 1);
  sizes.insert(sizes.begin() + axis, depth);
  along[static_cast<std::size_t>(axis)] = depth;
  return computed(context.dtype(2), sizes, [depth, axis, along](const Args& args) {
    const at::Tensor indices = wrapped(args.in(0), depth).unsqueeze(axis);
    const at::Tensor on = indices.eq(at::arange(depth, indices.options().dtype(at::kLong)).view(along));
    args.out().copy_(at::where(on, args.in(2).select(0, 1), args.in(2).select(0, 0)));
  });
}

}  // namespace

REKINDLE_OP("", "GatherND", lower_gather_nd);
REKINDLE_OP("", "OneHot", lower_one_hot);
REKINDLE_OP("", "ScatterElements", lower_scatter_elements);
REKINDLE_OP("", "ScatterND", lower_scatter_nd);
REKINDLE_OP("", "TensorScatter", lower_tensor_scatter);

}  // namespace rekindle::session
