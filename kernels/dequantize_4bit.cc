#include "kernels/dequantize_4bit.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <array>

#include "kernels/check.h"

namespace rekindle::kernels {
namespace {

using Values = std::array<float, 16>;

constexpr std::int64_t kElementsPerTask = 1 << 15;

// bitsandbytes' functional.get_4bit_type, and onnxruntime's blockwise_quant_block_bnb4.h.
constexpr Values kFp4{
    0.0F,  0.005208333333F,  0.66666667F,  1.0F,  0.33333333F,  0.5F,  0.16666667F,  0.25F,
    -0.0F, -0.005208333333F, -0.66666667F, -1.0F, -0.33333333F, -0.5F, -0.16666667F, -0.25F};
constexpr Values kNf4{-1.0F,
                      -0.6961928009986877F,
                      -0.5250730514526367F,
                      -0.39491748809814453F,
                      -0.28444138169288635F,
                      -0.18477343022823334F,
                      -0.09105003625154495F,
                      0.0F,
                      0.07958029955625534F,
                      0.16093020141124725F,
                      0.24611230194568634F,
                      0.33791524171829224F,
                      0.44070982933044434F,
                      0.5626170039176941F,
                      0.7229568362236023F,
                      1.0F};

const Values& values_of(Code4Bit code) { return code == Code4Bit::kNf4 ? kNf4 : kFp4; }

void check_arguments(const at::Tensor& packed, const at::Tensor& absmax, std::int64_t block_size,
                     const at::Tensor& weight) {
  TORCH_CHECK(block_size > 0 && block_size % 2 == 0,
              "dequantize_4bit: block_size must be even and positive, got ", block_size);
  check_floating("dequantize_4bit: weight", weight);
  check_floating("dequantize_4bit: absmax", absmax);
  const std::int64_t count = weight.numel();
  check_tensor("dequantize_4bit: packed", packed, at::kByte, {(count + 1) / 2}, weight);
  check_tensor("dequantize_4bit: absmax", absmax, absmax.scalar_type(),
               {(count + block_size - 1) / block_size}, weight);
  check_tensor("dequantize_4bit: weight", weight, weight.scalar_type(), weight.sizes(), weight);
}

template <typename T>
void dequantize_block(const std::uint8_t* packed, float absmax, const Values& values, std::int64_t count,
                      T* weight) {
  std::array<T, 16> scaled;
  for (std::size_t i = 0; i < scaled.size(); ++i) scaled[i] = static_cast<T>(values[i] * absmax);
  for (std::int64_t i = 0; i + 1 < count; i += 2) {
    const std::uint8_t byte = packed[i / 2];
    weight[i] = scaled[byte >> 4];
    weight[i + 1] = scaled[byte & 15];
  }
  if (count % 2 != 0) weight[count - 1] = scaled[packed[count / 2] >> 4];
}

}  // namespace

void dequantize_4bit(const at::Tensor& packed, const at::Tensor& absmax, std::int64_t block_size,
                     Code4Bit code, at::Tensor& weight) {
  check_arguments(packed, absmax, block_size, weight);
  if (!weight.is_cpu()) return dequantize_4bit_reference(packed, absmax, block_size, code, weight);
  const at::Tensor scales = absmax.to(at::kFloat);
  const float* scale = scales.const_data_ptr<float>();
  const std::uint8_t* bytes = packed.const_data_ptr<std::uint8_t>();
  const std::int64_t count = weight.numel(), blocks = scales.numel();
  const std::int64_t grain = std::max<std::int64_t>(1, kElementsPerTask / block_size);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, weight.scalar_type(), "dequantize_4bit", [&] {
    auto* out = weight.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, blocks, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t block = begin; block < end; ++block) {
        const std::int64_t first = block * block_size;
        dequantize_block(bytes + first / 2, scale[block], values_of(code),
                         std::min(block_size, count - first), out + first);
      }
    });
  });
}

void dequantize_4bit_reference(const at::Tensor& packed, const at::Tensor& absmax, std::int64_t block_size,
                               Code4Bit code, at::Tensor& weight) {
  const at::NoGradGuard no_grad;
  const Values& values = values_of(code);
  const at::Tensor table = at::tensor(at::ArrayRef<float>(values.data(), values.size())).to(weight.device());
  const at::Tensor bytes = packed.to(at::kInt);
  const at::Tensor halves = at::stack({bytes.bitwise_right_shift(4), bytes.bitwise_and(15)}, 1).reshape({-1});
  const at::Tensor scales = absmax.to(at::kFloat).repeat_interleave(block_size).narrow(0, 0, weight.numel());
  const at::Tensor numbers = table.index_select(0, halves.narrow(0, 0, weight.numel())).mul(scales);
  weight.copy_(numbers.view(weight.sizes()));
}

}  // namespace rekindle::kernels
