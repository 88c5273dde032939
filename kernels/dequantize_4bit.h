// Weights of 4 bits, as bitsandbytes packs them and onnxruntime's MatMulBnb4 reads them.
//
// Element i of the weight, in row-major order, is code[b] * absmax[i / block_size], where b is the high half
// of byte i / 2 for an even i and the low half for an odd one. packed: uint8, (elements + 1) / 2 of them.
// absmax: float32, float64, bfloat16 or float16, one a block, the last of which may be shorter. weight: any
// floating dtype. All contiguous and on one device. Errors are c10::Error. No autograd graph is recorded.
#pragma once

#include <cstdint>

namespace at {
class Tensor;
}

namespace rekindle::kernels {

// The numbering is MatMulBnb4's quant_type.
enum class Code4Bit : std::uint8_t { kFp4 = 0, kNf4 = 1 };

// Writes all of `weight`. block_size: even and positive.
void dequantize_4bit(const at::Tensor& packed, const at::Tensor& absmax, std::int64_t block_size,
                     Code4Bit code, at::Tensor& weight);

// The same in plain ATen, for any device.
void dequantize_4bit_reference(const at::Tensor& packed, const at::Tensor& absmax, std::int64_t block_size,
                               Code4Bit code, at::Tensor& weight);

}  // namespace rekindle::kernels
