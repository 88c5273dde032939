#include "python/bindings/ambient.h"

#include <ATen/Context.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/jit/frontend/tracer.h>

namespace rekindle::python {

std::vector<std::int64_t> ambient_state() {
  const at::Context& context = at::globalContext();
  std::vector<std::int64_t> state{
      at::GradMode::is_enabled(),
      c10::InferenceMode::is_enabled(),
      static_cast<std::int64_t>(c10::get_default_dtype_as_scalartype()),
      context.deterministicAlgorithms(),
      context.deterministicAlgorithmsWarnOnly(),
      static_cast<std::int64_t>(context.float32MatmulPrecision()),
      context.userEnabledMkldnn(),
      context.userEnabledFlashSDP(),
      context.userEnabledMemEfficientSDP(),
      context.userEnabledMathSDP(),
      context.userEnabledCuDNNSDP(),
      context.userEnabledCuDNN(),
      context.benchmarkCuDNN(),
      context.deterministicCuDNN(),
      context.deterministicFillUninitializedMemory(),
      static_cast<std::int64_t>(context.float32Precision(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL)),
      static_cast<std::int64_t>(context.float32Precision(at::Float32Backend::MKLDNN, at::Float32Op::CONV)),
      static_cast<std::int64_t>(context.float32Precision(at::Float32Backend::MKLDNN, at::Float32Op::RNN)),
      static_cast<std::int64_t>(context.float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL)),
      static_cast<std::int64_t>(context.float32Precision(at::Float32Backend::CUDA, at::Float32Op::CONV)),
      at::autocast::is_autocast_cache_enabled(),
      torch::autograd::AnomalyMode::is_enabled(),
      torch::autograd::ForwardADLevel::try_get_by_idx(0) != nullptr,
      at::impl::PythonTorchFunctionTLS::stack_len(),
      c10::impl::TorchDispatchModeTLS::stack_len(),
      c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode),
      static_cast<std::int64_t>(at::SavedTensorDefaultHooks::get_tls_state().stack.size()),
      torch::jit::tracer::isTracing(),
  };
  for (const c10::DeviceType device : {c10::kCPU, c10::kCUDA}) {
    state.push_back(at::autocast::is_autocast_enabled(device));
    state.push_back(static_cast<std::int64_t>(at::autocast::get_autocast_dtype(device)));
  }
  return state;
}

}  // namespace rekindle::python
