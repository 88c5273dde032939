#include "kernels/cross_entropy.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <vector>

#include "kernels/backends.h"
#include "kernels/check.h"

namespace rekindle::kernels {

CrossEntropyShape cross_entropy_shape(const at::Tensor& scores) {
  CrossEntropyShape shape;
  const std::int64_t class_dim = scores.dim() == 1 ? 0 : 1;
  shape.classes = scores.size(class_dim);
  if (class_dim == 1) shape.outer = scores.size(0);
  for (std::int64_t d = class_dim + 1; d < scores.dim(); ++d) shape.inner *= scores.size(d);
  return shape;
}

namespace {

std::vector<std::int64_t> target_sizes(const at::Tensor& scores) {
  auto sizes = scores.sizes().vec();
  sizes.erase(sizes.begin() + (scores.dim() == 1 ? 0 : 1));
  return sizes;
}

void check_inputs(const at::Tensor& scores, const at::Tensor& target, const at::Tensor& weight,
                  const CrossEntropyOptions& options) {
  TORCH_CHECK(scores.dim() >= 1, "cross_entropy: scores has no class dimension");
  check_floating("cross_entropy: scores", scores);
  check_tensor("cross_entropy: scores", scores, scores.scalar_type(), scores.sizes(), scores);
  check_tensor("cross_entropy: target", target, at::kLong, target_sizes(scores), scores);
  if (weight.defined()) {
    const std::int64_t classes = scores.size(scores.dim() == 1 ? 0 : 1);
    check_tensor("cross_entropy: weight", weight, scores.scalar_type(), {classes}, scores);
  }
  TORCH_CHECK(options.label_smoothing >= 0 && options.label_smoothing <= 1,
              "cross_entropy: label_smoothing must be between 0.0 and 1.0, got ", options.label_smoothing);
}

void check_loss(const char* name, const at::Tensor& loss, const at::Tensor& scores,
                const CrossEntropyOptions& options) {
  const auto sizes =
      options.reduction == Reduction::kNone ? target_sizes(scores) : std::vector<std::int64_t>{};
  check_tensor(name, loss, scores.scalar_type(), sizes, scores);
}

std::int64_t aten_reduction(Reduction reduction) {
  switch (reduction) {
    case Reduction::kNone:
      return at::Reduction::None;
    case Reduction::kMean:
      return at::Reduction::Mean;
    case Reduction::kSum:
      return at::Reduction::Sum;
  }
  TORCH_CHECK(false, "cross_entropy: unknown reduction ", static_cast<int>(reduction));
}

}  // namespace

void cross_entropy_forward(const at::Tensor& scores, const at::Tensor& target, const at::Tensor& weight,
                           const CrossEntropyOptions& options, at::Tensor& loss, at::Tensor& logsumexp) {
  check_inputs(scores, target, weight, options);
  check_loss("cross_entropy: loss", loss, scores, options);
  check_tensor("cross_entropy: logsumexp", logsumexp, accumulator_type(scores), target.sizes(), scores);
  if (scores.is_cpu()) return cpu::cross_entropy_forward(scores, target, weight, options, loss, logsumexp);
#if REKINDLE_WITH_CUDA
  if (scores.is_cuda()) return cuda::cross_entropy_forward(scores, target, weight, options, loss, logsumexp);
#endif
  cross_entropy_forward_reference(scores, target, weight, options, loss, logsumexp);
}

void cross_entropy_backward(const at::Tensor& dloss, const at::Tensor& scores, const at::Tensor& target,
                            const at::Tensor& logsumexp, const at::Tensor& weight,
                            const CrossEntropyOptions& options, at::Tensor& dscores) {
  check_inputs(scores, target, weight, options);
  check_loss("cross_entropy: dloss", dloss, scores, options);
  check_tensor("cross_entropy: logsumexp", logsumexp, accumulator_type(scores), target.sizes(), scores);
  check_tensor("cross_entropy: dscores", dscores, scores.scalar_type(), scores.sizes(), scores);
  if (scores.is_cpu()) {
    return cpu::cross_entropy_backward(dloss, scores, target, logsumexp, weight, options, dscores);
  }
#if REKINDLE_WITH_CUDA
  if (scores.is_cuda()) {
    return cuda::cross_entropy_backward(dloss, scores, target, logsumexp, weight, options, dscores);
  }
#endif
  cross_entropy_backward_reference(dloss, scores, target, logsumexp, weight, options, dscores);
}

std::int64_t cross_entropy_block(std::int64_t rows, std::int64_t classes, at::ScalarType dtype,
                                 at::Device device) {
  constexpr std::int64_t kBytes = 4 << 20, kNarrowest = 256, kCacheLine = 16;
  if (!device.is_cpu() || (dtype != at::kFloat && dtype != at::kDouble) || rows == 0) return classes;
  const std::int64_t fitting = kBytes / static_cast<std::int64_t>(c10::elementSize(dtype)) / rows;
  return std::min(classes, std::max(kNarrowest, fitting / kCacheLine * kCacheLine));
}

void cross_entropy_backward_blocks(const at::Tensor& dloss, const at::Tensor& scores,
                                   const at::Tensor& target, const at::Tensor& logsumexp,
                                   const at::Tensor& weight, const CrossEntropyOptions& options,
                                   at::Tensor& memory, const UseOfBlock& use) {
  TORCH_CHECK(scores.dim() == 2, "cross_entropy: scores of rank ", scores.dim(),
              " have no blocks of columns");
  const std::int64_t rows = scores.size(0), classes = scores.size(1);
  if (memory.numel() == scores.numel()) {
    at::Tensor whole = memory.view({rows, classes});
    cross_entropy_backward(dloss, scores, target, logsumexp, weight, options, whole);
    return use(0, whole);
  }
  check_inputs(scores, target, weight, options);
  check_loss("cross_entropy: dloss", dloss, scores, options);
  check_tensor("cross_entropy: logsumexp", logsumexp, accumulator_type(scores), target.sizes(), scores);
  const std::int64_t block = cross_entropy_block(rows, classes, scores.scalar_type(), scores.device());
  check_tensor("cross_entropy: memory", memory, scores.scalar_type(), {rows * block}, scores);
  cpu::cross_entropy_backward_blocks(dloss, scores, target, logsumexp, weight, options, memory, use);
}

void cross_entropy_forward_reference(const at::Tensor& scores, const at::Tensor& target,
                                     const at::Tensor& weight, const CrossEntropyOptions& options,
                                     at::Tensor& loss, at::Tensor& logsumexp) {
  const at::NoGradGuard no_grad;
  const auto type = accumulator_type(scores);
  const std::int64_t class_dim = scores.dim() == 1 ? 0 : 1;
  const auto wide = scores.to(type);
  const auto log_softmax = wide.log_softmax(class_dim);
  // Every class gives the same difference; a class of probability zero gives none.
  const auto likeliest = log_softmax.argmax(class_dim, /*keepdim=*/true);
  logsumexp.copy_(
      (wide.gather(class_dim, likeliest) - log_softmax.gather(class_dim, likeliest)).squeeze(class_dim));
  loss.copy_(at::cross_entropy_loss(wide, target, weight.defined() ? weight.to(type) : weight,
                                    aten_reduction(options.reduction), options.ignore_index,
                                    options.label_smoothing));
}

void cross_entropy_backward_reference(const at::Tensor& dloss, const at::Tensor& scores,
                                      const at::Tensor& target, const at::Tensor& /*logsumexp*/,
                                      const at::Tensor& weight, const CrossEntropyOptions& options,
                                      at::Tensor& dscores) {
  const at::NoGradGuard no_grad;
  const auto type = accumulator_type(scores);
  const std::int64_t class_dim = scores.dim() == 1 ? 0 : 1;
  const std::int64_t classes = scores.size(class_dim);
  const auto softmax = scores.to(type).log_softmax(class_dim).exp();
  const auto weights = weight.defined() ? weight.to(type) : at::ones({classes}, softmax.options());

  const auto ignored = target == options.ignore_index;
  const auto valid_target = target.masked_fill(ignored, 0);
  const auto target_weight = weights.index_select(0, valid_target.flatten()).view(target.sizes());
  auto scale = dloss.to(type).expand(target.sizes());
  if (options.reduction == Reduction::kMean) scale = scale / target_weight.masked_fill(ignored, 0).sum();
  scale = scale.masked_fill(ignored, 0).unsqueeze(class_dim);

  std::vector<std::int64_t> along_classes(scores.dim(), 1);
  along_classes[class_dim] = classes;
  const double smooth = options.label_smoothing / static_cast<double>(classes);
  const auto onehot = at::zeros_like(softmax).scatter(class_dim, valid_target.unsqueeze(class_dim),
                                                      (1 - options.label_smoothing));
  const auto dlog_softmax = scale * (onehot + smooth) * weights.view(along_classes);
  dscores.copy_(softmax * dlog_softmax.sum(class_dim, /*keepdim=*/true) - dlog_softmax);
}

}  // namespace rekindle::kernels
