#include "kernels/batch_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/batch_norm_elemt.h>
#include <ATen/ops/batch_norm_update_stats.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sum.h>

#include <optional>
#include <vector>

#include "kernels/backends.h"
#include "kernels/check.h"

namespace rekindle::kernels {
namespace {

void check_planes(const at::Tensor& x) {
  TORCH_CHECK(x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble,
              "batch_norm: x must be float32 or float64, got ", x.scalar_type());
  TORCH_CHECK(x.dim() >= 2, "batch_norm: x must have at least 2 dimensions, got shape ", x.sizes());
  check_tensor("batch_norm: x", x, x.scalar_type(), x.sizes(), x);
  TORCH_CHECK(x.numel() > 0 || x.size(1) == 0, "batch_norm: x has no elements in a channel, got shape ",
              x.sizes());
}

void check_channels(const char* name, const at::Tensor& tensor, const at::Tensor& x) {
  check_tensor(name, tensor, x.scalar_type(), {x.size(1)}, x);
}

void check_if_defined(const char* name, const at::Tensor& tensor, const at::Tensor& x) {
  if (tensor.defined()) check_channels(name, tensor, x);
}

// The sizes in which what belongs to channels broadcasts over x.
at::Tensor over(const at::Tensor& channels, const at::Tensor& x) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(x.dim()), 1);
  sizes[1] = x.size(1);
  return channels.view(sizes);
}

// All dimensions but that of the channels.
std::vector<std::int64_t> within_channel(const at::Tensor& x) {
  std::vector<std::int64_t> dims{0};
  for (std::int64_t d = 2; d < x.dim(); ++d) dims.push_back(d);
  return dims;
}

double channel_size(const at::Tensor& x) {
  return static_cast<double>(x.numel()) / static_cast<double>(x.size(1));
}

// Of a constant channel without epsilon, eager's is 0.
at::Tensor inverse_deviation(const at::Tensor& variance, const BatchNormOptions& options) {
  const at::Tensor found = (variance + options.epsilon).sqrt_().reciprocal_();
  return options.epsilon == 0 ? found.masked_fill(variance == 0, 0) : found;
}

void write_line(const BatchNormChannels& channels, const BatchNormStatistics& statistics) {
  statistics.factor.copy_(channels.weight.defined() ? statistics.inv_std * channels.weight
                                                    : statistics.inv_std);
  if (channels.bias.defined()) {
    statistics.offset.copy_(channels.bias);
  } else {
    statistics.offset.zero_();
  }
}

// Where a row has an element of each channel, eager sums in x's dtype, in an order that depends on threads.
bool has_kernel_for_statistics(const at::Tensor& x) {
  return x.is_cpu() && x.numel() != x.size(0) * x.size(1);
}

}  // namespace

void batch_statistics(const at::Tensor& x, const BatchNormChannels& channels, const BatchNormOptions& options,
                      const BatchNormStatistics& statistics) {
  check_planes(x);
  check_channels("batch_norm: running_mean", channels.running_mean, x);
  check_channels("batch_norm: running_var", channels.running_var, x);
  check_if_defined("batch_norm: weight", channels.weight, x);
  check_if_defined("batch_norm: bias", channels.bias, x);
  check_channels("batch_norm: mean", statistics.mean, x);
  check_channels("batch_norm: inv_std", statistics.inv_std, x);
  check_channels("batch_norm: the new running_mean", statistics.running_mean, x);
  check_channels("batch_norm: the new running_var", statistics.running_var, x);
  check_channels("batch_norm: factor", statistics.factor, x);
  check_channels("batch_norm: offset", statistics.offset, x);
  if (has_kernel_for_statistics(x)) return cpu::batch_statistics(x, channels, options, statistics);
  if (x.is_cpu() || x.is_cuda()) return batch_statistics_by_torch(x, channels, options, statistics);
  batch_statistics_reference(x, channels, options, statistics);
}

void batch_normalize(const at::Tensor& x, const BatchNormLine& line, bool relu, at::Tensor& y) {
  check_planes(x);
  check_channels("batch_norm: mean", line.mean, x);
  check_channels("batch_norm: factor", line.factor, x);
  check_channels("batch_norm: offset", line.offset, x);
  check_tensor("batch_norm: y", y, x.scalar_type(), x.sizes(), x);
  if (x.is_cpu()) return cpu::batch_normalize(x, line, relu, y);
  if (x.is_cuda()) return batch_normalize_by_torch(x, line, relu, y);
  batch_normalize_reference(x, line, relu, y);
}

void strided_batch_statistics(const at::Tensor& x, const BatchNormChannels& channels,
                              const BatchNormOptions& options, const BatchNormStatistics& statistics) {
  const at::NoGradGuard no_grad;
  const auto given = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  statistics.running_mean.copy_(channels.running_mean);
  statistics.running_var.copy_(channels.running_var);
  const auto [y, mean, inv_std] =
      at::native_batch_norm(x, given(channels.weight), given(channels.bias), statistics.running_mean,
                            statistics.running_var, /*training=*/true, options.momentum, options.epsilon);
  statistics.mean.copy_(mean);
  statistics.inv_std.copy_(inv_std);
  write_line(channels, statistics);
}

void strided_batch_normalize(const at::Tensor& x, const BatchNormLine& line, bool relu, at::Tensor& y) {
  batch_normalize_reference(x, line, relu, y);
}

void batch_statistics_by_torch(const at::Tensor& x, const BatchNormChannels& channels,
                               const BatchNormOptions& options, const BatchNormStatistics& statistics) {
  const at::NoGradGuard no_grad;
  if (x.numel() == 0) return;
  statistics.running_mean.copy_(channels.running_mean);
  statistics.running_var.copy_(channels.running_var);
  const auto [mean, variance] =
      at::batch_norm_update_stats(x, statistics.running_mean, statistics.running_var, options.momentum);
  statistics.mean.copy_(mean);
  statistics.inv_std.copy_(inverse_deviation(variance.to(at::kDouble), options));
  write_line(channels, statistics);
}

void batch_statistics_reference(const at::Tensor& x, const BatchNormChannels& channels,
                                const BatchNormOptions& options, const BatchNormStatistics& statistics) {
  const at::NoGradGuard no_grad;
  if (x.numel() == 0) return;
  const double count = channel_size(x);
  const at::Tensor precise = x.to(at::kDouble);
  const at::Tensor mean = precise.mean(within_channel(x));
  const at::Tensor squares = (precise - over(mean, x)).square_().sum(within_channel(x));
  const auto mixed = [&](const at::Tensor& batch, const at::Tensor& running) {
    return batch * options.momentum + running * (1 - options.momentum);
  };
  const at::Tensor running_var = mixed(squares / (count - 1), channels.running_var);
  statistics.running_mean.copy_(mixed(mean, channels.running_mean));
  statistics.running_var.copy_(running_var);
  statistics.mean.copy_(mean);
  statistics.inv_std.copy_(inverse_deviation(squares / count, options));
  write_line(channels, statistics);
}

void batch_normalize_by_torch(const at::Tensor& x, const BatchNormLine& line, bool relu, at::Tensor& y) {
  const at::NoGradGuard no_grad;
  if (x.numel() == 0) return;
  // Its (x - mean) * inv_std * weight + bias, in one walk.
  at::batch_norm_elemt_out(y, x, line.factor, line.offset, line.mean, at::ones_like(line.mean), /*eps=*/0);
  if (relu) y.relu_();
}

void batch_normalize_reference(const at::Tensor& x, const BatchNormLine& line, bool relu, at::Tensor& y) {
  const at::NoGradGuard no_grad;
  y.copy_((x - over(line.mean, x)).mul_(over(line.factor, x)).add_(over(line.offset, x)));
  if (relu) y.relu_();
}

}  // namespace rekindle::kernels
