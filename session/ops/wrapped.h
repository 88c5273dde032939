// Indices as ONNX allows them.
#pragma once

#include <ATen/ops/where.h>

#include "session/lower/op.h"

namespace rekindle::session {

// Indices in [0, size), as int64: negative ones count from the end; the
// rest is left for the kernel's own check.
inline at::Tensor wrapped(const at::Tensor& indices, std::int64_t size) {
  const at::Tensor wide = indices.to(at::kLong);
  return at::where(wide.lt(0), wide.add(size), wide);
}

}  // namespace rekindle::session
