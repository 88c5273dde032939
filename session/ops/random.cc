// Dropout. The mask's draws are eager's, in eager's order, and it is kept as one byte an element.
#include "kernels/dropout.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/native_dropout.h>
#include <ATen/ops/native_dropout_backward.h>

#include "session/lower/op.h"
#include "session/lower/settled.h"

namespace rekindle::session {
namespace {

// As one row of all elements in memory order: where all tensors are laid out
// alike, any order of dimensions is right.
at::Tensor in_memory_order(const at::Tensor& x) { return x.as_strided({x.numel()}, {1}); }

// Eager draws in the order of the input's memory, and its results are laid out like the input.
std::optional<Sizes> dense_strides(const at::Tensor& meta) {
  return meta.is_non_overlapping_and_dense() ? std::optional(meta.strides().vec()) : std::nullopt;
}

// Applies the mask that is input number `mask` to input 0. `alike`: both lie in memory in the same order.
Kernel applying_mask(double ratio, bool alike, std::size_t mask) {
  return [ratio, alike, mask](const Args& args) {
    if (!alike) args.out().copy_(args.in(0));
    at::Tensor y = in_memory_order(args.out());
    kernels::dropout_from_mask(alike ? in_memory_order(args.in(0)) : y, in_memory_order(args.in(mask)), ratio,
                               y);
  };
}

// PyTorch's kernels of an accelerator draw and apply a mask at once, into memory of theirs that lies as x
// does.
bool is_fused(const LowerContext& context, double ratio) {
  return !context.device().is_cpu() && ratio > 0 && ratio < 1;
}

Kernel fused(double ratio, std::vector<Layout> planned) {
  return [ratio, planned = std::move(planned)](const Args& args) {
    auto [y, mask] = at::native_dropout(args.in(0), ratio, /*train=*/true);
    args.out(0) = settled(std::move(y), planned[0], /*shared=*/false, "Dropout");
    args.out(1) = settled(std::move(mask), planned[1], /*shared=*/false, "Dropout");
  };
}

// Applies the mask that is input number `mask` to input 0.
Kernel fused_from_mask(double ratio, Layout planned, std::size_t mask) {
  return [scale = 1.0 / (1.0 - ratio), planned = std::move(planned), mask](const Args& args) {
    args.out() = settled(at::native_dropout_backward(args.in(0), args.in(mask), scale), planned,
                         /*shared=*/false, "Dropout");
  };
}

// Outputs: y, mask. Not in training (or ratio 0) it is the identity and the mask is all true.
Lowering lower_dropout(const LowerContext& context) {
  const double ratio = context.has(1) ? context.scalar(1) : 0.5;
  const bool training = context.has(2) && context.scalar(2) != 0;
  const std::optional<Sizes> strides = dense_strides(context.meta(0));
  Lowering lowering;
  lowering.outputs = {{context.dtype(0), context.sizes(0), strides}, {at::kBool, context.sizes(0), strides}};
  lowering.in_place = {0};
  if (!training || ratio == 0.0) {
    lowering.kernel = [](const Args& args) {
      args.out(0).copy_(args.in(0));
      args.out(1).fill_(true);
    };
    return lowering;
  }
  if (is_fused(context, ratio)) {
    lowering.gives = true;
    lowering.in_place.clear();
    lowering.kernel = fused(ratio, lowering.outputs);
    lowering.again = fused_from_mask(ratio, lowering.outputs[0], context.num_inputs());
    return lowering;
  }
  lowering.kernel = [ratio, dense = strides.has_value()](const Args& args) {
    if (!dense) args.out(0).copy_(args.in(0));
    at::Tensor y = in_memory_order(args.out(0)), mask = in_memory_order(args.out(1));
    kernels::dropout_forward(dense ? in_memory_order(args.in(0)) : y, ratio, y, mask);
  };
  lowering.again = applying_mask(ratio, strides.has_value(), context.num_inputs());
  return lowering;
}

// dy is brought into the mask's layout when it has another.
Lowering lower_dropout_gradient(const LowerContext& context) {
  const double ratio = context.scalar(2);
  const bool alike = context.meta(0).strides() == context.meta(1).strides();
  Lowering lowering;
  lowering.outputs = {{context.dtype(0), context.sizes(0), context.meta(1).strides().vec()}};
  if (is_fused(context, ratio)) {
    lowering.gives = true;
    lowering.kernel = fused_from_mask(ratio, lowering.outputs[0], 1);
    return lowering;
  }
  lowering.in_place = {0};
  lowering.kernel = applying_mask(ratio, alike, 1);
  return lowering;
}

// Inputs: x, ratio, rows, tokens*. Draws for all tokens, as eager does, and keeps what is drawn for the rows.
Lowering lower_dropout_rows(const LowerContext& context) {
  const double ratio = context.scalar(1);
  const Sizes sizes = context.sizes(0);
  Sizes whole = sizes;
  whole[0] = context.meta(3).size(0) * context.meta(3).size(1);
  Lowering lowering;
  lowering.outputs = {{context.dtype(0), sizes, {}}, {at::kBool, sizes, {}}};
  lowering.scratch = {{at::kBool, whole, {}}};
  lowering.in_place = {0};
  lowering.kernel = [ratio, dtype = context.dtype(0)](const Args& args) {
    at::Tensor drawn = args.out(2), mask = args.out(1);
    kernels::dropout_sample_mask(drawn, ratio, dtype);
    at::index_select_out(mask, drawn, 0, args.in(2));
    const at::Tensor x = args.in(0).contiguous();
    kernels::dropout_from_mask(x, mask, ratio, args.out(0));
  };
  lowering.again = applying_mask(ratio, context.meta(0).is_contiguous(), context.num_inputs());
  return lowering;
}

}  // namespace

REKINDLE_OP("rekindle", "DropoutRows", lower_dropout_rows);
REKINDLE_OP("", "Dropout", lower_dropout);
REKINDLE_OP("rekindle", "DropoutGradient", lower_dropout_gradient);

}  // namespace rekindle::session
