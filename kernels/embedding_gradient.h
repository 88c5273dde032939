// The gradient of an embedding's weight: rows of dy summed per index.
#pragma once

#include <cstdint>

namespace at {
class Tensor;
}

namespace rekindle::kernels {

struct EmbeddingGradientOptions {
  std::int64_t padding_idx = -1;  // this index contributes nothing; -1: none
  bool accumulate = false;        // add to what dweight holds instead of to zeros
};

// dweight[indices[i], :] += dy[i, :] in the order of i, so the result does not depend on the number of
// threads; each sum is rounded to dweight's dtype, as eager does on the CPU. dy [..., D] of dtype float64,
// float32, bfloat16 or float16; indices [...] int64 or int32; dweight [V, D] of dy's dtype, not overlapping
// dy. All are contiguous and on one device. CPU: nothing is allocated. Errors are c10::Error, and
// c10::IndexError for an index outside [0, V), before anything is written. No autograd graph is recorded.
void embedding_gradient(const at::Tensor& dy, const at::Tensor& indices,
                        const EmbeddingGradientOptions& options, at::Tensor& dweight);

// The same in plain ATen, for any device.
void embedding_gradient_reference(const at::Tensor& dy, const at::Tensor& indices,
                                  const EmbeddingGradientOptions& options, at::Tensor& dweight);

}  // namespace rekindle::kernels
