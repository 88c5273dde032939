#include "session/lower/settled.h"

#include <ATen/ops/empty_strided.h>

#include "session/lower/plan_mismatch.h"

namespace rekindle::session {
namespace {

// Row by row, with no exception for sizes of 1 or 0.
bool is_contiguous(const at::Tensor& tensor) {
  std::int64_t stride = 1;
  for (std::int64_t i = tensor.dim(); i-- > 0; stride *= tensor.size(i)) {
    if (tensor.stride(i) != stride) return false;
  }
  return true;
}

}  // namespace

Layout layout_of(const at::Tensor& tensor) {
  const bool dense = tensor.is_non_overlapping_and_dense();
  return {tensor.scalar_type(), tensor.sizes().vec(),
          dense ? std::optional(tensor.strides().vec()) : std::nullopt};
}

void check_result(const at::Tensor& tensor, const Layout& planned, const std::string& name) {
  TORCH_CHECK(tensor.defined() && tensor.layout() == at::kStrided, name, " returned no dense tensor");
  if (tensor.scalar_type() != planned.dtype || tensor.sizes() != planned.sizes) {
    throw PlanMismatch(c10::str(name, " returned ", tensor.toString(), tensor.sizes(), " where ",
                                planned.dtype, at::IntArrayRef(planned.sizes), " was planned"));
  }
}

at::Tensor settled(at::Tensor tensor, const Layout& planned, bool shared, const std::string& name) {
  check_result(tensor, planned, name);
  if (tensor.is_conj() || tensor.is_neg()) tensor = tensor.resolve_conj().resolve_neg();
  const bool lies = planned.strides ? tensor.strides() == *planned.strides : is_contiguous(tensor);
  if (!shared && lies && tensor.storage_offset() == 0) return tensor;
  const Sizes strides = planned.strides.value_or(c10::TensorType::contiguousStridesOf(planned.sizes));
  return at::empty_strided(planned.sizes, strides, tensor.options()).copy_(tensor);
}

at::Tensor settled_gradient(at::Tensor gradient, const Layout& planned, const std::string& name) {
  const bool shared =
      gradient.use_count() > 1 || (gradient.has_storage() && gradient.storage().use_count() > 1);
  return settled(std::move(gradient), planned, shared, name);
}

}  // namespace rekindle::session
