// CrossEntropyLoss with class indices: one pass over the scores, no log-probabilities kept.
#include "kernels/cross_entropy.h"

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

}  // namespace

REKINDLE_OP("rekindle", "CrossEntropyLoss", lower_cross_entropy);
REKINDLE_OP("rekindle", "CrossEntropyLossGradient", lower_cross_entropy_gradient);

}  // namespace rekindle::session
