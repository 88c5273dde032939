// CrossEntropyLoss with class indices: one pass over the scores, no log-probabilities kept.
#include "kernels/cross_entropy.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>

#include <algorithm>

#include "session/lower/op.h"

namespace rekindle::session {
namespace {

kernels::CrossEntropyOptions options_of(const LowerContext& context) {
  const std::string reduction = context.string_attribute("reduction", "mean");
  TORCH_CHECK(reduction == "mean" || reduction == "sum" || reduction == "none", "reduction '", reduction,
              "'");
  kernels::CrossEntropyOptions options;
  options.reduction = reduction == "mean"  ? kernels::Reduction::kMean
                      : reduction == "sum" ? kernels::Reduction::kSum
                                           : kernels::Reduction::kNone;
  options.ignore_index = context.int_attribute("ignore_index", -100);
  options.label_smoothing = context.float_attribute("label_smoothing", 0.0);
  return options;
}

at::Tensor dense(const at::Tensor& x) { return x.defined() ? x.contiguous() : x; }

// Outputs: loss, logsumexp.
Lowering lower_cross_entropy(const LowerContext& context) {
  const kernels::CrossEntropyOptions options = options_of(context);
  const bool weight = context.has(2);
  const Sizes target = context.sizes(1);
  const at::ScalarType precise = context.dtype(0) == at::kDouble ? at::kDouble : at::kFloat;
  Lowering lowering;
  lowering.outputs = {
      {context.dtype(0), options.reduction == kernels::Reduction::kNone ? target : Sizes{}, {}},
      {precise, target, {}}};
  lowering.kernel = [options, weight](const Args& args) {
    kernels::cross_entropy_forward(dense(args.in(0)), dense(args.in(1)),
                                   weight ? dense(args.in(2)) : at::Tensor(), options, args.out(0),
                                   args.out(1));
  };
  return lowering;
}

// Inputs: dloss, scores, target, logsumexp, weight?. dscores takes the scores' memory when they die here.
Lowering lower_cross_entropy_gradient(const LowerContext& context) {
  const kernels::CrossEntropyOptions options = options_of(context);
  const bool weight = context.has(4);
  return computed(context.dtype(1), context.sizes(1),
                  [options, weight](const Args& args) {
                    kernels::cross_entropy_backward(dense(args.in(0)), dense(args.in(1)), dense(args.in(2)),
                                                    args.in(3), weight ? dense(args.in(4)) : at::Tensor(),
                                                    options, args.out());
                  },
                  {1});
}

// Adds what a block of the gradient of the scores, for weight's rows from `first`, does to the others.
void use_block(const Args& args, std::int64_t first, const at::Tensor& block, bool has_bias) {
  const std::int64_t rows = block.size(0), classes = block.size(1);
  const at::Tensor weight = args.in(5).narrow(0, first, classes);
  at::Tensor dx = args.out(0).view({rows, weight.size(1)}), dweight = args.out(1).narrow(0, first, classes);
  if (first == 0) {
    at::mm_out(dx, block, weight);
  } else {
    at::addmm_out(dx, dx, block, weight);
  }
  at::mm_out(dweight, block.t(), dense(args.in(4)).view({rows, weight.size(1)}));
  if (!has_bias) return;
  at::Tensor dbias = args.out(2).narrow(0, first, classes);
  at::sum_out(dbias, block, {0});
}

// Inputs: dloss, scores, target, logsumexp, x, weight, class_weight?. Outputs: dx, dweight, dbias?.
Lowering lower_linear_cross_entropy_gradient(const LowerContext& context) {
  const kernels::CrossEntropyOptions options = options_of(context);
  const bool class_weight = context.has(6), bias = context.num_outputs() > 2;
  const Sizes scores = context.sizes(1), weight = context.sizes(5);
  const bool alike = scores[1] == weight[0];  // not where a row of x makes several rows of scores
  const std::int64_t rows = product(scores) / std::max<std::int64_t>(1, weight[0]);  // of x
  const std::int64_t columns =
      alike ? kernels::cross_entropy_block(scores[0], scores[1], context.dtype(1), context.device())
            : scores[1];
  Lowering lowering;
  lowering.outputs = {{context.dtype(4), context.sizes(4), {}}, {context.dtype(5), weight, {}}};
  if (bias) lowering.outputs.push_back({context.dtype(5), {weight[0]}, {}});
  lowering.scratch = {{context.dtype(1), {scores[0] * columns}, {}}};
  lowering.kernel = [=](const Args& args) {
    kernels::cross_entropy_backward_blocks(
        dense(args.in(0)), dense(args.in(1)), dense(args.in(2)), args.in(3),
        class_weight ? dense(args.in(6)) : at::Tensor(), options, args.out(bias ? 3 : 2),
        [&](std::int64_t first, const at::Tensor& made) {
          use_block(args, first, alike ? made : made.view({rows, weight[0]}), bias);
        });
  };
  return lowering;
}

}  // namespace

REKINDLE_OP("rekindle", "CrossEntropyLoss", lower_cross_entropy);
REKINDLE_OP("rekindle", "CrossEntropyLossGradient", lower_cross_entropy_gradient);
REKINDLE_OP("rekindle", "LinearCrossEntropyGradient", lower_linear_cross_entropy_gradient);

}  // namespace rekindle::session
