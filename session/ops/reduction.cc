// Reductions and what normalizes along an axis.
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/argmin.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cumprod.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/prod.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "session/lower/op.h"

namespace rekindle::session {
namespace {

// The axes an ONNX reduction works on: input 1, attribute "axes", or all (none with noop_with_empty_axes).
struct Reduction {
  Sizes axes, sizes;  // sizes of the result
  bool keep = true;
};

Reduction reduction_of(const LowerContext& context, std::size_t of, std::size_t axes_input) {
  Reduction reduction;
  const std::int64_t rank = context.rank(of);
  reduction.keep = context.int_attribute("keepdims", 1) != 0;
  std::optional<Sizes> axes = context.ints_or_attribute(axes_input, "axes");
  if (!axes || axes->empty()) {
    axes.emplace(context.int_attribute("noop_with_empty_axes", 0) != 0 ? 0 : rank);
    std::iota(axes->begin(), axes->end(), std::int64_t{0});
  }
  for (const std::int64_t axis : *axes) reduction.axes.push_back(context.axis_or_scalar(axis, rank));
  for (std::int64_t i = 0; i < rank; ++i) {
    const bool reduced = std::find(reduction.axes.begin(), reduction.axes.end(), i) != reduction.axes.end();
    if (!reduced) reduction.sizes.push_back(context.meta(of).size(i));
    if (reduced && reduction.keep) reduction.sizes.push_back(1);
  }
  return reduction;
}

using ReduceOut = void (*)(at::Tensor& out, const at::Tensor& x, at::IntArrayRef axes, bool keep);

// Over no axes, each element is a sum of its own; what is done to it before and after summing remains.
Lowering unreduced(const LowerContext& context) {
  const std::string op = context.node().op_type();
  return computed(context.dtype(0), context.sizes(0), [op](const Args& args) {
    const at::Tensor& x = args.in(0);
    const bool absolute = op == "ReduceL1" || op == "ReduceL2";
    args.out().copy_(absolute                  ? x.abs()
                     : op == "ReduceSumSquare" ? x.mul(x)
                     : op == "ReduceLogSum"    ? x.log()
                                               : x);
  });
}

template <ReduceOut function>
Lowering reduce(const LowerContext& context) {
  Reduction reduction = reduction_of(context, 0, 1);
  if (reduction.axes.empty()) return unreduced(context);
  return computed(context.dtype(0), reduction.sizes,
                  [axes = reduction.axes, keep = reduction.keep](const Args& args) {
                    function(args.out(), args.in(0), axes, keep);
                  });
}

void sum(at::Tensor& out, const at::Tensor& x, at::IntArrayRef axes, bool keep) {
  at::sum_out(out, x, axes, keep, out.scalar_type());
}
void mean(at::Tensor& out, const at::Tensor& x, at::IntArrayRef axes, bool keep) {
  at::mean_out(out, x, axes, keep);
}
// The extremum of nothing is the least, or the greatest, number of the type.
at::Scalar extreme(at::ScalarType type, bool least) {
  if (at::isFloatingType(type)) return least ? -INFINITY : INFINITY;
  if (type == at::kBool) return !least;
  const auto bits = 8 * c10::elementSize(type) - (type == at::kByte ? 0 : 1);
  const auto most = static_cast<std::int64_t>((std::uint64_t{1} << bits) - 1);
  return least ? (type == at::kByte ? 0 : -most - 1) : most;
}
void amax(at::Tensor& out, const at::Tensor& x, at::IntArrayRef axes, bool keep) {
  x.numel() == 0 ? void(out.fill_(extreme(x.scalar_type(), true))) : void(at::amax_out(out, x, axes, keep));
}
void amin(at::Tensor& out, const at::Tensor& x, at::IntArrayRef axes, bool keep) {
  x.numel() == 0 ? void(out.fill_(extreme(x.scalar_type(), false))) : void(at::amin_out(out, x, axes, keep));
}
template <int p>
void norm(at::Tensor& out, const at::Tensor& x, at::IntArrayRef axes, bool keep) {
  if (at::isIntegralType(x.scalar_type(), false) && p == 1) {
    at::sum_out(out, x.abs(), axes, keep, out.scalar_type());  // wraps, as integers do
  } else if (at::isIntegralType(x.scalar_type(), false)) {
    out.copy_(at::linalg_vector_norm(x.to(at::kDouble), p, axes, keep));
  } else {
    at::linalg_vector_norm_out(out, x, p, axes, keep);
  }
}
void sum_square(at::Tensor& out, const at::Tensor& x, at::IntArrayRef axes, bool keep) {
  at::sum_out(out, x.mul(x), axes, keep, out.scalar_type());
}
void log_sum(at::Tensor& out, const at::Tensor& x, at::IntArrayRef axes, bool keep) {
  out.copy_(at::sum(at::isFloatingType(x.scalar_type()) ? x : x.to(at::kDouble), axes, keep).log());
}
// One axis after the other, the last first: ATen's product takes one.
void prod(at::Tensor& out, const at::Tensor& x, at::IntArrayRef axes, bool keep) {
  Sizes order = axes.vec();
  std::sort(order.rbegin(), order.rend());
  at::Tensor product = x;
  for (const std::int64_t axis : order) product = at::prod(product, axis, keep, out.scalar_type());
  out.copy_(product);
}
void logsumexp(at::Tensor& out, const at::Tensor& x, at::IntArrayRef axes, bool keep) {
  at::logsumexp_out(out, x, axes, keep);
}

// dx of a sum or mean: dy spread over the reduced dimensions, divided by `count` for a mean.
Lowering spread(const LowerContext& context, bool mean) {
  const Sizes sizes = context.sizes(1);
  Sizes axes, kept = sizes;
  if (const auto* attribute = context.node().attribute("axes")) axes = std::get<Sizes>(*attribute);
  if (context.node().attribute("axes") == nullptr) {
    axes.resize(sizes.size());
    std::iota(axes.begin(), axes.end(), std::int64_t{0});
  }
  double count = 1;
  for (const std::int64_t axis : axes) {
    const auto position = static_cast<std::size_t>(context.axis_or_scalar(axis, context.rank(1)));
    if (position >= kept.size()) continue;  // of a 0-dim tensor
    std::int64_t& size = kept[position];
    count *= static_cast<double>(size);
    size = 1;
  }
  Lowering lowering = computed(context.dtype(0), sizes, [kept, count, mean](const Args& args) {
    args.out().copy_(args.in(0).reshape(kept));
    if (mean) args.out().div_(count);
  });
  if (!mean) {
    lowering.views.push_back([kept, sizes](const at::Tensor& dy) {
      return dy.is_contiguous() ? dy.view(kept).expand(sizes) : at::Tensor();
    });
  }
  return lowering;
}

Lowering lower_sum_gradient(const LowerContext& context) { return spread(context, false); }
Lowering lower_mean_gradient(const LowerContext& context) { return spread(context, true); }

Lowering lower_softmax(const LowerContext& context) {
  const std::int64_t axis = context.axis_or_scalar(context.int_attribute("axis", -1), context.rank(0));
  return computed(context.dtype(0), context.sizes(0),
                  [axis](const Args& args) { at::_softmax_out(args.out(), args.in(0), axis, false); });
}

Lowering lower_log_softmax(const LowerContext& context) {
  const std::int64_t axis = context.axis_or_scalar(context.int_attribute("axis", -1), context.rank(0));
  return computed(context.dtype(0), context.sizes(0),
                  [axis](const Args& args) { at::_log_softmax_out(args.out(), args.in(0), axis, false); });
}

Lowering lower_softmax_gradient(const LowerContext& context) {
  const std::int64_t axis = context.axis_or_scalar(context.int_attribute("axis", -1), context.rank(0));
  const at::ScalarType type = context.dtype(1);
  return computed(type, context.sizes(1), [axis, type](const Args& args) {
    at::_softmax_backward_data_out(args.out(), args.in(0), args.in(1), axis, type);
  });
}

Lowering lower_log_softmax_gradient(const LowerContext& context) {
  const std::int64_t axis = context.axis_or_scalar(context.int_attribute("axis", -1), context.rank(0));
  const at::ScalarType type = context.dtype(1);
  return computed(type, context.sizes(1), [axis, type](const Args& args) {
    at::_log_softmax_backward_data_out(args.out(), args.in(0), args.in(1), axis, type);
  });
}

// `reverse` as given for the op itself, turned for its gradient. Exclusive ones are moved by one place.
Lowering cumulative(const LowerContext& context, bool reverse, bool product = false) {
  const bool exclusive = context.int_attribute("exclusive", 0) != 0;
  const std::int64_t axis = context.axis_or_scalar(context.ints(1).at(0), context.rank(0));
  return computed(context.dtype(0), context.sizes(0), [axis, reverse, product, exclusive](const Args& args) {
    if (!reverse && !exclusive && !product) {
      at::cumsum_out(args.out(), args.in(0), axis);
      return;
    }
    at::Tensor x = reverse ? args.in(0).flip({axis}) : args.in(0);
    if (exclusive && x.dim() > 0 && x.size(axis) > 0) {
      const at::Tensor first = at::full_like(x.narrow(axis, 0, 1), product ? 1 : 0);
      x = at::cat({first, x.narrow(axis, 0, x.size(axis) - 1)}, axis);
    } else if (exclusive) {
      x = at::full_like(x, product ? 1 : 0);
    }
    const at::Tensor y =
        product ? at::cumprod(x, axis, x.scalar_type()) : at::cumsum(x, axis, x.scalar_type());
    args.out().copy_(reverse ? y.flip({axis}) : y);
  });
}

Lowering lower_cumsum(const LowerContext& context) {
  return cumulative(context, context.int_attribute("reverse", 0) != 0);
}
Lowering lower_cumprod(const LowerContext& context) {
  return cumulative(context, context.int_attribute("reverse", 0) != 0, /*product=*/true);
}
Lowering lower_cumsum_gradient(const LowerContext& context) {
  return cumulative(context, context.int_attribute("reverse", 0) == 0);
}

template <bool maximum>
Lowering arg_reduce(const LowerContext& context) {
  const bool select_last = context.int_attribute("select_last_index", 0) != 0;
  const std::int64_t axis = context.axis_or_scalar(context.int_attribute("axis", 0), context.rank(0));
  const bool keep = context.int_attribute("keepdims", 1) != 0;
  Sizes sizes = context.sizes(0);
  if (keep && !sizes.empty()) sizes[static_cast<std::size_t>(axis)] = 1;
  if (!keep && !sizes.empty()) sizes.erase(sizes.begin() + axis);
  return computed(at::kLong, sizes, [axis, keep, select_last](const Args& args) {
    if (select_last && args.in(0).dim() > 0) {
      const at::Tensor turned = args.in(0).flip({axis});
      const at::Tensor from_end = maximum ? turned.argmax(axis, keep) : turned.argmin(axis, keep);
      args.out().copy_(from_end.mul(-1).add(turned.size(axis) - 1));
    } else if (maximum) {
      at::argmax_out(args.out(), args.in(0), axis, keep);
    } else {
      at::argmin_out(args.out(), args.in(0), axis, keep);
    }
  });
}

}  // namespace

REKINDLE_OP("", "ArgMax", arg_reduce<true>);
REKINDLE_OP("", "ArgMin", arg_reduce<false>);
REKINDLE_OP("", "CumProd", lower_cumprod);
REKINDLE_OP("", "CumSum", lower_cumsum);
REKINDLE_OP("", "LogSoftmax", lower_log_softmax);
REKINDLE_OP("", "ReduceL1", reduce<norm<1>>);
REKINDLE_OP("", "ReduceL2", reduce<norm<2>>);
REKINDLE_OP("", "ReduceLogSum", reduce<log_sum>);
REKINDLE_OP("", "ReduceLogSumExp", reduce<logsumexp>);
REKINDLE_OP("", "ReduceMax", reduce<amax>);
REKINDLE_OP("", "ReduceMean", reduce<mean>);
REKINDLE_OP("", "ReduceMin", reduce<amin>);
REKINDLE_OP("", "ReduceProd", reduce<prod>);
REKINDLE_OP("", "ReduceSum", reduce<sum>);
REKINDLE_OP("", "ReduceSumSquare", reduce<sum_square>);
REKINDLE_OP("", "Softmax", lower_softmax);
REKINDLE_OP("rekindle", "CumSumGradient", lower_cumsum_gradient);
REKINDLE_OP("rekindle", "LogSoftmaxGradient", lower_log_softmax_gradient);
REKINDLE_OP("rekindle", "MeanGradient", lower_mean_gradient);
REKINDLE_OP("rekindle", "SoftmaxGradient", lower_softmax_gradient);
REKINDLE_OP("rekindle", "SumGradient", lower_sum_gradient);

}  // namespace rekindle::session
