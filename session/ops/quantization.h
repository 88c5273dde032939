// What quantized ops share.
#pragma once

#include "session/lower/op.h"

namespace rekindle::session {

// A scalar as it is; a vector as a tensor of rank `rank` that runs along `axis`.
inline at::Tensor along_axis(const at::Tensor& vector, std::int64_t rank, std::int64_t axis) {
  if (vector.numel() == 1) return vector.reshape({});
  Sizes sizes(static_cast<std::size_t>(rank), 1);
  sizes[static_cast<std::size_t>(axis)] = vector.numel();
  return vector.reshape(sizes);
}

// Rounds (half to even), adds the zero point (may be undefined) and saturates to out's integer type.
void quantize_into(at::Tensor out, const at::Tensor& scaled, const at::Tensor& zero_point);

}  // namespace rekindle::session
