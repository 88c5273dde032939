#include "python/calls/ambient.h"

#include <ATen/Context.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include <string>

namespace rekindle::python {
namespace {

namespace py = pybind11;
using at::Float32Backend;
using at::Float32Op;

enum class Shown : std::uint8_t { kFlag, kNumber, kDtype, kMatmulPrecision, kPrecision };

// write: null for what is entered and left as a region.
struct Switch {
  std::string name;
  Shown shown;
  std::int64_t (*read)();
  void (*write)(std::int64_t) = nullptr;
};

at::Context& context() { return at::globalContext(); }

constexpr std::int64_t kMixed = -1;
constexpr auto kReduced =
    static_cast<std::int64_t>(at::CuBLASReductionOption::AllowReducedPrecisionWithSplitK);
constexpr auto kWhole =
    static_cast<std::int64_t>(at::CuBLASReductionOption::DisallowReducedPrecisionDisallowSplitK);

// Raises in PyTorch, as any call that asks for it does, once the older and the newer names were both set.
std::int64_t matmul_precision() {
  try {
    return static_cast<std::int64_t>(context().float32MatmulPrecision());
  } catch (const c10::Error&) {
    return kMixed;
  }
}

void set_matmul_precision(std::int64_t value) {
  static constexpr const char* kNames[] = {"highest", "high", "medium"};
  if (value != kMixed) context().setFloat32MatmulPrecision(kNames[value]);
}

py::handle dtype(std::int64_t value) {
  return reinterpret_cast<PyObject*>(torch::getTHPDtype(static_cast<at::ScalarType>(value)));
}

// By Python's function, which sets torch.Storage as well.
void set_default_dtype(std::int64_t value) {
  py::module_::import("torch._C").attr("_set_default_dtype")(dtype(value));
}

template <Float32Backend kBackend, Float32Op kOp>
Switch precision(const char* name) {
  return {std::string("fp32_precision.") + name, Shown::kPrecision,
          [] { return static_cast<std::int64_t>(context().float32Precision(kBackend, kOp)); },
          [](std::int64_t value) {
            context().setFloat32Precision(kBackend, kOp, static_cast<at::Float32Precision>(value));
          }};
}

template <c10::DeviceType kDevice>
void add_autocast(std::vector<Switch>& table) {
  const std::string name = "autocast." + c10::DeviceTypeName(kDevice, /*lower_case=*/true);
  table.push_back({name + ".enabled", Shown::kFlag,
                   [] { return std::int64_t{at::autocast::is_autocast_enabled(kDevice)}; },
                   [](std::int64_t value) { at::autocast::set_autocast_enabled(kDevice, value != 0); }});
  table.push_back({name + ".dtype", Shown::kDtype,
                   [] { return static_cast<std::int64_t>(at::autocast::get_autocast_dtype(kDevice)); },
                   [](std::int64_t value) {
                     at::autocast::set_autocast_dtype(kDevice, static_cast<at::ScalarType>(value));
                   }});
}

// The order counts: to set the precision of products sets those of the backends.
std::vector<Switch> made_table() {
  std::vector<Switch> table = {
      {"grad_mode", Shown::kFlag, [] { return std::int64_t{at::GradMode::is_enabled()}; }},
      {"inference_mode", Shown::kFlag, [] { return std::int64_t{c10::InferenceMode::is_enabled()}; }},
      {"anomaly_mode", Shown::kFlag, [] { return std::int64_t{torch::autograd::AnomalyMode::is_enabled()}; },
       [](std::int64_t value) { torch::autograd::AnomalyMode::set_enabled(value != 0); }},
      {"default_dtype", Shown::kDtype,
       [] { return static_cast<std::int64_t>(c10::get_default_dtype_as_scalartype()); }, set_default_dtype},
      {"deterministic.enabled", Shown::kFlag,
       [] { return std::int64_t{context().deterministicAlgorithms()}; },
       [](std::int64_t value) {
         context().setDeterministicAlgorithms(value != 0, context().deterministicAlgorithmsWarnOnly());
       }},
      {"deterministic.warn_only", Shown::kFlag,
       [] { return std::int64_t{context().deterministicAlgorithmsWarnOnly()}; },
       [](std::int64_t value) {
         context().setDeterministicAlgorithms(context().deterministicAlgorithms(), value != 0);
       }},
      {"deterministic.fill_uninitialized", Shown::kFlag,
       [] { return std::int64_t{context().deterministicFillUninitializedMemory()}; },
       [](std::int64_t value) { context().setDeterministicFillUninitializedMemory(value != 0); }},
      {"float32_matmul_precision", Shown::kMatmulPrecision, matmul_precision, set_matmul_precision},
      {"cuda.reduced_fp16", Shown::kNumber,
       [] { return static_cast<std::int64_t>(context().allowFP16ReductionCuBLAS()); },
       [](std::int64_t value) { context().setAllowFP16ReductionCuBLAS(value == kReduced, value != kWhole); }},
      {"cuda.reduced_bf16", Shown::kNumber,
       [] { return static_cast<std::int64_t>(context().allowBF16ReductionCuBLAS()); },
       [](std::int64_t value) { context().setAllowBF16ReductionCuBLAS(value == kReduced, value != kWhole); }},
      {"cuda.fp16_accumulation", Shown::kFlag,
       [] { return std::int64_t{context().allowFP16AccumulationCuBLAS()}; },
       [](std::int64_t value) { context().setAllowFP16AccumulationCuBLAS(value != 0); }},
      {"cpu.reduced_fp16", Shown::kFlag, [] { return std::int64_t{context().allowFP16ReductionCPU()}; },
       [](std::int64_t value) { context().setAllowFP16ReductionCPU(value != 0); }},
      {"cudnn.enabled", Shown::kFlag, [] { return std::int64_t{context().userEnabledCuDNN()}; },
       [](std::int64_t value) { context().setUserEnabledCuDNN(value != 0); }},
      {"cudnn.benchmark", Shown::kFlag, [] { return std::int64_t{context().benchmarkCuDNN()}; },
       [](std::int64_t value) { context().setBenchmarkCuDNN(value != 0); }},
      {"cudnn.deterministic", Shown::kFlag, [] { return std::int64_t{context().deterministicCuDNN()}; },
       [](std::int64_t value) { context().setDeterministicCuDNN(value != 0); }},
      {"mkldnn.enabled", Shown::kFlag, [] { return std::int64_t{context().userEnabledMkldnn()}; },
       [](std::int64_t value) { context().setUserEnabledMkldnn(value != 0); }},
      {"mkldnn.deterministic", Shown::kFlag, [] { return std::int64_t{context().deterministicMkldnn()}; },
       [](std::int64_t value) { context().setDeterministicMkldnn(value != 0); }},
      {"nnpack.enabled", Shown::kFlag, [] { return std::int64_t{context().userEnabledNNPACK()}; },
       [](std::int64_t value) { context().setUserEnabledNNPACK(value != 0); }},
      {"sdp.flash", Shown::kFlag, [] { return std::int64_t{context().userEnabledFlashSDP()}; },
       [](std::int64_t value) { context().setSDPUseFlash(value != 0); }},
      {"sdp.mem_efficient", Shown::kFlag, [] { return std::int64_t{context().userEnabledMemEfficientSDP()}; },
       [](std::int64_t value) { context().setSDPUseMemEfficient(value != 0); }},
      {"sdp.math", Shown::kFlag, [] { return std::int64_t{context().userEnabledMathSDP()}; },
       [](std::int64_t value) { context().setSDPUseMath(value != 0); }},
      {"sdp.cudnn", Shown::kFlag, [] { return std::int64_t{context().userEnabledCuDNNSDP()}; },
       [](std::int64_t value) { context().setSDPUseCuDNN(value != 0); }},
      {"sdp.reduced_math", Shown::kFlag,
       [] { return std::int64_t{context().allowFP16BF16ReductionMathSDP()}; },
       [](std::int64_t value) { context().setAllowFP16BF16ReductionMathSDP(value != 0); }},
      precision<Float32Backend::GENERIC, Float32Op::ALL>("generic.all"),
      precision<Float32Backend::CUDA, Float32Op::MATMUL>("cuda.matmul"),
      precision<Float32Backend::CUDA, Float32Op::CONV>("cuda.conv"),
      precision<Float32Backend::CUDA, Float32Op::RNN>("cuda.rnn"),
      precision<Float32Backend::MKLDNN, Float32Op::MATMUL>("mkldnn.matmul"),
      precision<Float32Backend::MKLDNN, Float32Op::CONV>("mkldnn.conv"),
      precision<Float32Backend::MKLDNN, Float32Op::RNN>("mkldnn.rnn"),
      {"autocast.cache", Shown::kFlag, [] { return std::int64_t{at::autocast::is_autocast_cache_enabled()}; },
       [](std::int64_t value) { at::autocast::set_autocast_cache_enabled(value != 0); }},
  };
  add_autocast<c10::kCPU>(table);
  add_autocast<c10::kCUDA>(table);
  add_autocast<c10::kXPU>(table);
  add_autocast<c10::kMPS>(table);
  add_autocast<c10::kHPU>(table);
  add_autocast<c10::kMTIA>(table);
  add_autocast<c10::kXLA>(table);
  add_autocast<c10::kPrivateUse1>(table);
  return table;
}

const std::vector<Switch>& table() {
  static const std::vector<Switch> made = made_table();
  return made;
}

// The default devices around a call, and by address what else may rewrite its operators.
std::int64_t function_modes() {
  std::size_t modes = 0;
  for (std::int64_t i = 0; i < at::impl::PythonTorchFunctionTLS::stack_len(); ++i) {
    const auto& held = at::impl::PythonTorchFunctionTLS::get_stack_at(i);
    const py::handle mode(held->ptr(getPyInterpreter()));
    const py::object device = py::getattr(mode, "device", py::none());
    modes = c10::hash_combine(modes, static_cast<std::size_t>(py::hash(device.is_none() ? mode : device)));
  }
  return static_cast<std::int64_t>(modes);
}

// What refuses a call while it is there; see key/ambient.py.
constexpr std::int64_t (*kRefusing[])() = {
    function_modes,
    [] { return c10::impl::TorchDispatchModeTLS::stack_len(); },
    [] {
      using c10::DispatchKey;
      return std::int64_t{
          c10::impl::tls_is_dispatch_key_included(DispatchKey::FuncTorchDynamicLayerFrontMode)};
    },
    [] { return static_cast<std::int64_t>(at::SavedTensorDefaultHooks::get_tls_state().stack.size()); },
    [] { return std::int64_t{torch::autograd::ForwardADLevel::try_get_by_idx(0) != nullptr}; },
    [] { return std::int64_t{torch::jit::tracer::isTracing()}; },
};

py::object shown(Shown how, std::int64_t value) {
  switch (how) {
    case Shown::kFlag:
      return py::bool_(value != 0);
    case Shown::kNumber:
      return py::int_(value);
    case Shown::kDtype:
      return py::str(dtype(value));
    case Shown::kMatmulPrecision:
      return py::str(value == 0 ? "highest" : value == 1 ? "high" : value == 2 ? "medium" : "mixed");
    case Shown::kPrecision:
      return py::str(at::precision2str(static_cast<at::Float32Precision>(value)));
  }
  return py::none();
}

}  // namespace

std::vector<std::int64_t> ambient_state() {
  std::vector<std::int64_t> state;
  state.reserve(table().size() + std::size(kRefusing));
  for (const Switch& each : table()) state.push_back(each.read());
  for (const auto read : kRefusing) state.push_back(read());
  return state;
}

bool is_ambient_state(const std::vector<std::int64_t>& state) {
  const auto& switches = table();
  if (state.size() != switches.size() + std::size(kRefusing)) return false;
  for (std::size_t i = 0; i < switches.size(); ++i) {
    if (switches[i].read() != state[i]) return false;
  }
  for (std::size_t i = 0; i < std::size(kRefusing); ++i) {
    if (kRefusing[i]() != state[switches.size() + i]) return false;
  }
  return true;
}

py::list ambient_fields() {
  py::list fields;
  for (const Switch& each : table()) fields.append(py::make_tuple(each.name, shown(each.shown, each.read())));
  return fields;
}

void set_ambient_state(const std::vector<std::int64_t>& state) {
  const auto& switches = table();
  for (std::size_t i = 0; i < switches.size() && i < state.size(); ++i) {
    if (switches[i].write != nullptr && switches[i].read() != state[i]) switches[i].write(state[i]);
  }
}

}  // namespace rekindle::python
