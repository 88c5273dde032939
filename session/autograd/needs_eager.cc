#include "session/autograd/needs_eager.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include <algorithm>

namespace rekindle::session {
namespace {

bool is_mapped() {
  return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode) ||
         c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::VmapMode);
}

bool are_strided(const std::vector<at::Tensor>& tensors) {
  return std::ranges::all_of(
      tensors, [](const at::Tensor& tensor) { return !tensor.defined() || tensor.layout() == at::kStrided; });
}

}  // namespace

bool needs_eager(const std::vector<at::Tensor>& cotangents) {
  return at::GradMode::is_enabled() || is_mapped() || !are_strided(cotangents);
}

bool is_watched() {
  using torch::autograd::AnomalyMode;
  return c10::impl::TorchDispatchModeTLS::stack_len() > 0 ||
         (AnomalyMode::is_enabled() && AnomalyMode::should_check_nan());
}

}  // namespace rekindle::session
