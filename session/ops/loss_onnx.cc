// ONNX's own losses. Training uses rekindle::CrossEntropyLoss (loss.cc).
#include <ATen/core/Reduction.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/nll_loss_nd.h>

#include "session/lower/op.h"

namespace rekindle::session {
namespace {

std::int64_t reduction_of(const LowerContext& context) {
  const std::string reduction = context.string_attribute("reduction", "mean");
  if (reduction == "mean") return at::Reduction::Mean;
  if (reduction == "sum") return at::Reduction::Sum;
  TORCH_CHECK(reduction == "none", "reduction '", reduction, "'");
  return at::Reduction::None;
}

// An ignored class is written as one that no class has: PyTorch takes any
// number, but checks those of other targets.
struct Loss {
  std::int64_t reduction;
  std::optional<std::int64_t> ignored;

  at::Tensor operator()(const at::Tensor& scores, const at::Tensor& target, const at::Tensor& weight) const {
    constexpr std::int64_t kIgnored = -100;
    at::Tensor classes = target.to(at::kLong);
    if (ignored) classes = classes.masked_fill(classes.eq(*ignored), kIgnored);
    return at::nll_loss_nd(scores, classes, weight.defined() ? std::optional(weight) : std::nullopt,
                           reduction, kIgnored);
  }
};

Loss loss_of(const LowerContext& context) {
  const bool ignores = context.node().attribute("ignore_index") != nullptr;
  return {reduction_of(context),
          ignores ? std::optional(context.int_attribute("ignore_index", 0)) : std::nullopt};
}

Lowering lower_negative_log_likelihood_loss(const LowerContext& context) {
  const Sizes sizes = reduction_of(context) == at::Reduction::None ? context.sizes(1) : Sizes{};
  return computed(context.dtype(0), sizes,
                  [loss = loss_of(context), weighted = context.has(2)](const Args& args) {
                    args.out().copy_(loss(args.in(0), args.in(1), weighted ? args.in(2) : at::Tensor()));
                  });
}

// Outputs: the loss and the logarithms of the probabilities.
Lowering lower_softmax_cross_entropy_loss(const LowerContext& context) {
  const Sizes sizes = reduction_of(context) == at::Reduction::None ? context.sizes(1) : Sizes{};
  Lowering lowering;
  lowering.outputs = {{context.dtype(0), sizes, {}}, {context.dtype(0), context.sizes(0), {}}};
  lowering.kernel = [loss = loss_of(context), weighted = context.has(2)](const Args& args) {
    args.out(1).copy_(at::log_softmax(args.in(0), 1));
    args.out(0).copy_(loss(args.out(1), args.in(1), weighted ? args.in(2) : at::Tensor()));
  };
  return lowering;
}

}  // namespace

REKINDLE_OP("", "NegativeLogLikelihoodLoss", lower_negative_log_likelihood_loss);
REKINDLE_OP("", "SoftmaxCrossEntropyLoss", lower_softmax_cross_entropy_loss);

}  // namespace rekindle::session
