#include "session/lower/missing_meta.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <utility>

namespace rekindle::session {
namespace {

// (self, mat2, offs?, bias?, out_dtype?): products of matrices, the rows, columns or summands of which are in
// groups; `offs` has the end of each. Either matrix is 2-d or a batch. Torch's own of 2.11 takes bfloat16
// only, as CUDA does.
std::vector<at::Tensor> grouped_mm(const std::vector<c10::IValue>& arguments) {
  const at::Tensor &a = arguments.at(0).toTensor(), &b = arguments.at(1).toTensor();
  const std::int64_t groups = arguments.at(2).isTensor() ? arguments.at(2).toTensor().size(0) : -1;
  const bool flat_a = a.dim() == 2, flat_b = b.dim() == 2;
  TORCH_CHECK(
      (flat_a || a.dim() == 3) && (flat_b || b.dim() == 3) && a.size(-1) == b.size(-2) &&
          a.scalar_type() == b.scalar_type() && (groups >= 0) == (flat_a || flat_b) &&
          (flat_a || groups < 0 || groups == a.size(0)) && (flat_b || groups < 0 || groups == b.size(0)) &&
          (flat_a || flat_b || a.size(0) == b.size(0)),
      "grouped_mm of ", a.toString(), a.sizes(), " and ", b.toString(), b.sizes(), " in ", groups, " groups");
  const at::TensorOptions options =
      a.options().dtype(arguments.at(4).isNone() ? a.scalar_type() : arguments.at(4).toScalarType());
  if (flat_a != flat_b) return {at::empty({a.size(-2), b.size(-1)}, options)};
  return {at::empty({flat_a ? groups : a.size(0), a.size(-2), b.size(-1)}, options)};
}

// (log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity): PyTorch has a kernel
// for a part of it only. log_probs: [time, batch, classes] or [time, classes]; a loss a sample, or one.
std::vector<at::Tensor> ctc_loss(const std::vector<c10::IValue>& arguments) {
  const at::Tensor& scores = arguments.at(0).toTensor();
  TORCH_CHECK(scores.dim() == 2 || scores.dim() == 3, "ctc_loss of ", scores.sizes());
  if (arguments.at(5).toInt() != 0 || scores.dim() == 2) return {at::empty({}, scores.options())};
  return {at::empty({scores.size(1)}, scores.options())};
}

// (input, weight?, bias?, running_mean, running_var, training, momentum, eps): the result, mean and inverse
// deviation of the batch, and the new statistics. For one dtype only: others compute in a wider one.
std::vector<at::Tensor> batch_norm(const std::vector<c10::IValue>& arguments) {
  const at::Tensor& x = arguments.at(0).toTensor();
  const bool training = arguments.at(5).toBool();
  const bool plain = x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble;
  if (!plain || !training || x.dim() < 2 || x.numel() == 0) return {};
  for (std::size_t i = 1; i < 5; ++i) {
    if (arguments[i].isNone()) continue;
    const at::Tensor& of_channels = arguments[i].toTensor();
    if (of_channels.scalar_type() != x.scalar_type() || of_channels.sizes() != at::IntArrayRef{x.size(1)})
      return {};
  }
  const auto channels = [&] { return at::empty({x.size(1)}, x.options()); };
  const at::Tensor y = at::empty(x.sizes(), x.options(), x.suggest_memory_format());
  return {y, channels(), channels(), channels(), channels()};
}

constexpr std::array<std::pair<std::string_view, MetaKernel>, 4> kKernels{{
    {"aten._native_batch_norm_legit_functional.default", batch_norm},
    {"aten._grouped_mm.default", grouped_mm},
    {"aten.ctc_loss.Tensor", ctc_loss},
    {"aten.ctc_loss.IntList", ctc_loss},
}};

}  // namespace

MetaKernel missing_meta(std::string_view op_type) {
  const auto* found = std::ranges::find(kKernels, op_type, &std::pair<std::string_view, MetaKernel>::first);
  return found == kKernels.end() ? nullptr : found->second;
}

}  // namespace rekindle::session
