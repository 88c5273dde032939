// The device versions behind the kernels' public functions. Arguments are checked before they come here.
#pragma once

#include <algorithm>

#include "kernels/batch_norm.h"
#include "kernels/cross_entropy.h"
#include "kernels/difference.h"
#include "kernels/dropout.h"
#include "kernels/embedding_gradient.h"
#include "kernels/layer_norm.h"
#include "kernels/summary.h"

namespace rekindle::kernels {

// scores seen as [outer, classes, inner].
struct CrossEntropyShape {
  std::int64_t outer = 1;
  std::int64_t classes = 1;
  std::int64_t inner = 1;
  std::int64_t rows() const { return outer * inner; }
};

CrossEntropyShape cross_entropy_shape(const at::Tensor& scores);

struct RowsAndColumns {
  std::int64_t rows = 1;
  std::int64_t columns = 1;
};

RowsAndColumns rows_and_columns(const at::Tensor& x, std::int64_t axis);

// Groups of rows whose parameter gradients are summed apart: a matter of
// shape, so that threads change no result.
inline std::int64_t layer_norm_chunks(std::int64_t rows) {
  return std::clamp<std::int64_t>(rows / 16, 1, 32);
}

namespace cpu {
void batch_statistics(const at::Tensor& x, const BatchNormChannels& channels, const BatchNormOptions& options,
                      const BatchNormStatistics& statistics);
void batch_normalize(const at::Tensor& x, const BatchNormLine& line, bool relu, at::Tensor& y);

void cross_entropy_forward(const at::Tensor& scores, const at::Tensor& target, const at::Tensor& weight,
                           const CrossEntropyOptions& options, at::Tensor& loss, at::Tensor& logsumexp);
void cross_entropy_backward(const at::Tensor& dloss, const at::Tensor& scores, const at::Tensor& target,
                            const at::Tensor& logsumexp, const at::Tensor& weight,
                            const CrossEntropyOptions& options, at::Tensor& dscores);
void cross_entropy_backward_blocks(const at::Tensor& dloss, const at::Tensor& scores,
                                   const at::Tensor& target, const at::Tensor& logsumexp,
                                   const at::Tensor& weight, const CrossEntropyOptions& options,
                                   at::Tensor& memory, const UseOfBlock& use);  // float32, float64

Difference difference(const at::Tensor& ours, const at::Tensor& theirs);  // alike and dense
Summary summary(const at::Tensor& x);

// False, with nothing done, when this ATen would have drawn otherwise. 0 < p < 1.
bool dropout_sample_mask(at::Tensor& mask, double p);
void dropout_from_mask(const at::Tensor& x, const at::Tensor& mask, double p, at::Tensor& y);
void embedding_gradient(const at::Tensor& dy, const at::Tensor& indices,
                        const EmbeddingGradientOptions& options, at::Tensor& dweight);
void layer_norm_forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        const LayerNormOptions& options, at::Tensor& y, at::Tensor& mean,
                        at::Tensor& inv_std);
void layer_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean,
                         const at::Tensor& inv_std, const at::Tensor& weight, const LayerNormOptions& options,
                         const LayerNormGradients& gradients);
}  // namespace cpu

namespace cuda {
void cross_entropy_forward(const at::Tensor& scores, const at::Tensor& target, const at::Tensor& weight,
                           const CrossEntropyOptions& options, at::Tensor& loss, at::Tensor& logsumexp);
void cross_entropy_backward(const at::Tensor& dloss, const at::Tensor& scores, const at::Tensor& target,
                            const at::Tensor& logsumexp, const at::Tensor& weight,
                            const CrossEntropyOptions& options, at::Tensor& dscores);
}  // namespace cuda

}  // namespace rekindle::kernels
