// Cross entropy with class indices, without ever storing log-probabilities.
//
// Values, gradients and errors are those of at::cross_entropy_loss; the backward pass needs the scores
// and one number per row. Shapes: scores [C], [N, C] or [N, C, ...]; target int64 of scores' shape
// without the class dimension. dtypes: float64, float32, bfloat16 and float16, summed in float64 or
// float32. `logsumexp` has target's shape and float64 for float64 scores, else float32; it is nan or -inf
// where a row's softmax is nan (a nan, an inf, or only -inf among the scores). `weight` [C] has scores'
// dtype; an undefined tensor means none.
//
// All tensors are contiguous and on one device. Results depend on the shapes alone, not on the number of
// threads. CPU: nothing is allocated. Errors are c10::Error, and c10::IndexError for a target that is neither
// a class nor ignore_index. No autograd graph is recorded.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>

namespace at {
class Tensor;
using c10::Device;
using c10::ScalarType;
}  // namespace at

namespace rekindle::kernels {

enum class Reduction { kNone, kMean, kSum };

struct CrossEntropyOptions {
  Reduction reduction = Reduction::kMean;
  std::int64_t ignore_index = -100;  // rows with this target count for nothing
  double label_smoothing = 0.0;      // in [0, 1]
};

// Writes `loss` (scores' dtype; a scalar, or target's shape without a reduction) and `logsumexp`.
// The mean of no rows, or of ignored rows only, is nan.
void cross_entropy_forward(const at::Tensor& scores, const at::Tensor& target, const at::Tensor& weight,
                           const CrossEntropyOptions& options, at::Tensor& loss, at::Tensor& logsumexp);

// Writes `dscores` (scores' shape and dtype), which may be the same memory as `scores`. `dloss` has loss's
// shape and dtype; `logsumexp` is what the forward pass wrote.
void cross_entropy_backward(const at::Tensor& dloss, const at::Tensor& scores, const at::Tensor& target,
                            const at::Tensor& logsumexp, const at::Tensor& weight,
                            const CrossEntropyOptions& options, at::Tensor& dscores);

// The columns [first, first + dscores.size(1)) of a gradient [N, C]; the tensor is the caller's until it
// returns.
using UseOfBlock = std::function<void(std::int64_t first, const at::Tensor& dscores)>;
// Returns how many columns of the gradient of scores [rows, classes] are made at a time: all of them unless
// that is large. CPU only, and float32 or float64: sums over narrower types would be rounded block by block.
std::int64_t cross_entropy_block(std::int64_t rows, std::int64_t classes, at::ScalarType dtype,
                                 at::Device device);
// Calls `use` with one block of the gradient after the other, of scores [N, C]. Together they have the bits
// of cross_entropy_backward(). Each is made in `memory`, [N * cross_entropy_block()] of scores' dtype; in
// [N * C] the only one is.
void cross_entropy_backward_blocks(const at::Tensor& dloss, const at::Tensor& scores,
                                   const at::Tensor& target, const at::Tensor& logsumexp,
                                   const at::Tensor& weight, const CrossEntropyOptions& options,
                                   at::Tensor& memory, const UseOfBlock& use);

// The same in plain ATen, for any device: slow, allocating, obviously right.
void cross_entropy_forward_reference(const at::Tensor& scores, const at::Tensor& target,
                                     const at::Tensor& weight, const CrossEntropyOptions& options,
                                     at::Tensor& loss, at::Tensor& logsumexp);
void cross_entropy_backward_reference(const at::Tensor& dloss, const at::Tensor& scores,
                                      const at::Tensor& target, const at::Tensor& logsumexp,
                                      const at::Tensor& weight, const CrossEntropyOptions& options,
                                      at::Tensor& dscores);

}  // namespace rekindle::kernels
