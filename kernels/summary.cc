#include "kernels/summary.h"

#include <ATen/core/Tensor.h>

#include "kernels/backends.h"

namespace rekindle::kernels {

Summary summary(const at::Tensor& x) {
  TORCH_CHECK(x.is_cpu() && x.is_non_overlapping_and_dense() && !x.is_neg(), "summary: a tensor on ",
              x.device(), ", sizes ", x.sizes(), ", strides ", x.strides(),
              "; it has to be dense and on the CPU");
  return cpu::summary(x);
}

}  // namespace rekindle::kernels
