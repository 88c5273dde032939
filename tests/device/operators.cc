// The operators of the test device: those that make memory or views, and a fallback that runs all others on
// the CPU over the device's own memory.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <optional>

#include "tests/device/machine.h"
#include "tests/device/recording.h"

namespace rekindle::testing::device {
namespace {

using c10::IValue;

at::Device wanted(std::optional<at::Device> device) {
  return device && device->has_index() ? *device : testing::device::device(current_device());
}

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(wanted(device));
  return at::detail::empty_generic(sizes, c10::GetAllocator(kType),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(wanted(device));
  return at::detail::empty_strided_generic(sizes, strides, c10::GetAllocator(kType),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(type));
}

bool is_here(const at::Tensor& tensor) { return tensor.defined() && tensor.device().type() == kType; }

// A CPU tensor over the device memory of `tensor`, to be used while a kernel runs.
at::Tensor on_host(const at::Tensor& tensor) {
  if (!is_here(tensor)) return tensor;
  const auto options = at::TensorOptions().dtype(tensor.scalar_type()).device(at::kCPU);
  if (tensor.numel() == 0) return at::empty_strided(tensor.sizes(), tensor.strides(), options);
  void* const data = const_cast<void*>(tensor.unsafeGetTensorImpl()->data());
  const at::Tensor host = at::from_blob(data, tensor.sizes(), tensor.strides(), options);
  host._set_conj(tensor.is_conj());
  host._set_neg(tensor.is_neg());
  return host;
}

void launch_copy(int index, const at::Tensor& to, const at::Tensor& from) {
  Kernel kernel(index, "aten::copy_");
  kernel.reads(from);
  kernel.writes(to);
  on_host(to).copy_(on_host(from));
  if (recording() == nullptr) return;
  record_launch([index, to = is_here(to) ? alias_of(to) : to, from = is_here(from) ? alias_of(from) : from] {
    launch_copy(index, to, from);
  });
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool) {
  const bool to_host = !is_here(self), from_host = !is_here(source);
  const int index = (to_host ? source : self).device().index();
  const bool across = !to_host && !from_host && source.device() != self.device();
  if (across) Machine::get().meet(self.device().index(), source.device().index());
  launch_copy(index, self, source);
  if (across) Machine::get().meet(self.device().index(), source.device().index());
  if (to_host || from_host) Machine::get().synchronize(index, current_stream(index));
  return self;
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& self, bool non_blocking) {
  at::Tensor to = self;
  return copy_(to, source, non_blocking);
}

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef sizes,
                          std::optional<at::MemoryFormat> format) {
  const at::Tensor like = at::empty(sizes, self.options(), format);
  c10::TensorImpl* const impl = self.unsafeGetTensorImpl();
  if (like.storage().nbytes() > self.storage().nbytes()) impl->set_storage_keep_dtype(like.storage());
  impl->set_sizes_and_strides(sizes, like.strides());
  return self;
}

// Storages that are too small would become the CPU's.
at::Tensor& set_storage(at::Tensor& self, at::Storage source, std::int64_t offset, at::IntArrayRef sizes,
                        at::IntArrayRef strides) {
  const std::size_t element = self.dtype().itemsize(), first = static_cast<std::size_t>(offset);
  const std::size_t needed = strides.data() == nullptr
                                 ? at::detail::computeStorageNbytesContiguous(sizes, element, first)
                                 : at::detail::computeStorageNbytes(sizes, strides, element, first);
  TORCH_CHECK(source.nbytes() >= needed, "a storage of ", source.nbytes(), " bytes is set, ", needed,
              " are needed");
  return at::native::set_storage_cpu_(self, std::move(source), offset, sizes, strides);
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  Machine::get().record_stream(self.storage().data_ptr().get_context(), stream.device_index(),
                               static_cast<int>(stream.id()));
}

// One call of an operator, as it goes over the CPU.
class Call {
 public:
  Call(const c10::OperatorHandle& op, c10::ArrayRef<IValue> arguments)
      : schema_(op.schema()),
        arguments_(arguments.vec()),
        device_(device_of_call()),
        kernel_(device_.index(), schema_.name()),
        is_random_(op.hasTag(at::Tag::nondeterministic_seeded)) {}

  void run(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
    const c10::DeviceGuard guard(device_);
    torch::jit::Stack inner;
    for (std::size_t i = 0; i < arguments_.size(); ++i)
      inner.push_back(host_value(arguments_[i], schema_.arguments()[i]));
    // Such a kernel is no device's but the CPU's.
    TORCH_CHECK_NOT_IMPLEMENTED(schema_.name().find("_for_cpu") == std::string::npos, schema_.name(),
                                " is the CPU's own");
    const torch::jit::Stack before = recording() == nullptr ? torch::jit::Stack() : baked(inner);
    run_on_host(op, inner, device_, is_random_);
    for (const auto& [here, host] : written_) settle(here, host);
    std::vector<IValue> results;
    for (std::size_t i = 0; i < inner.size(); ++i) results.push_back(result(inner[i], schema_.returns()[i]));
    if (recording() != nullptr) record(op, before);
    torch::jit::drop(stack, arguments_.size());
    for (IValue& value : results) stack.push_back(std::move(value));
  }

 private:
  at::Device device_of_call() const {
    std::optional<at::Device> found;
    const auto see = [&](const at::Tensor& tensor) {
      if (!is_here(tensor)) return;
      TORCH_CHECK(!found || *found == tensor.device(), schema_.name(),
                  ": expected all tensors to be on the same device, but found ", *found, " and ",
                  tensor.device());
      found = tensor.device();
    };
    for (const IValue& value : arguments_) {
      if (value.isTensor()) see(value.toTensor());
      if (value.isTensorList()) std::ranges::for_each(value.toTensorVector(), see);
      if (value.isDevice() && !found) found = wanted(value.toDevice());
    }
    return found.value_or(testing::device::device(current_device()));
  }

  at::Tensor host_tensor(const at::Tensor& tensor, bool written) {
    if (!tensor.defined()) return tensor;
    if (!is_here(tensor)) {
      TORCH_CHECK(tensor.dim() == 0 && !written, schema_.name(), ": a tensor of sizes ", tensor.sizes(),
                  " is on the host, the others on ", device_);
      return tensor;
    }
    written ? kernel_.writes(tensor) : kernel_.reads(tensor);
    at::Tensor host = on_host(tensor);
    read_.emplace_back(tensor, host);
    if (written) written_.emplace_back(tensor, host);
    return host;
  }

  IValue host_value(const IValue& value, const c10::Argument& argument) {
    const bool written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    if (value.isTensor()) return host_tensor(value.toTensor(), written);
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(host_tensor(tensor, written));
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const auto& tensor : value.toOptionalTensorVector())
        list.push_back(tensor ? std::optional(host_tensor(*tensor, written)) : std::nullopt);
      return list;
    }
    if (value.isDevice()) return at::Device(at::kCPU);
    return value;
  }

  // What a launch keeps of its arguments: numbers on the host as they are now, device memory by its address.
  static torch::jit::Stack baked(const torch::jit::Stack& stack) {
    torch::jit::Stack kept;
    for (const IValue& value : stack) {
      const bool is_number = value.isTensor() && value.toTensor().defined() &&
                             Machine::get().device_of(value.toTensor().unsafeGetTensorImpl()->data()) < 0;
      kept.push_back(is_number ? IValue(value.toTensor().clone()) : value);
    }
    return kept;
  }

  static std::vector<at::Tensor> tensors_of(const torch::jit::Stack& stack) {
    std::vector<at::Tensor> tensors;
    for (const IValue& value : stack) {
      if (value.isTensor()) tensors.push_back(value.toTensor());
      if (value.isTensorList()) {
        for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(tensor);
      }
    }
    return tensors;
  }

  void record(const c10::OperatorHandle& op, const torch::jit::Stack& before) const {
    std::vector<at::Tensor> read, written, results;
    for (const auto& [here, host] : read_) read.push_back(alias_of(here));
    for (const auto& [here, host] : written_) written.push_back(alias_of(here));
    for (const at::Tensor& here : placed_) results.push_back(here.defined() ? alias_of(here) : here);
    record_launch([=, device = device_, is_random = is_random_, name = schema_.name()] {
      Kernel kernel(device.index(), name);
      for (const at::Tensor& tensor : read) kernel.reads(tensor);
      for (const at::Tensor& tensor : written) kernel.writes(tensor);
      torch::jit::Stack stack = before;
      run_on_host(op, stack, device, is_random);
      const std::vector<at::Tensor> made = tensors_of(stack);
      for (std::size_t i = 0; i < results.size(); ++i) {
        if (!results[i].defined()) continue;
        kernel.writes(results[i]);
        on_host(results[i]).copy_(made.at(i));
      }
    });
  }

  // Random numbers are drawn from the device's generator, whoever asks for them.
  static void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack& stack, at::Device device,
                          bool is_random) {
    if (!is_random) return op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
    at::Generator &own = Machine::get().generator(device.index()),
                  host = at::detail::getDefaultCPUGenerator();
    const at::Tensor before = host.get_state();
    host.set_state(own.get_state());
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
    own.set_state(host.get_state());
    host.set_state(before);
  }

  // An output that had no elements may have some now.
  static void settle(const at::Tensor& here, const at::Tensor& host) {
    if (here.sizes() == host.sizes()) return;
    refuse_to_record("an output gets another size");
    here.resize_(host.sizes());
    on_host(here).copy_(host);
  }

  // As result(), of one tensor.
  at::Tensor placed(const at::Tensor& host) {
    const std::size_t before = made_++;
    const at::Tensor here = place(host);
    placed_.resize(before + 1);
    const bool is_new = here.defined() && !std::ranges::any_of(read_, [&](const auto& pair) {
                          return pair.first.is_alias_of(here);
                        });
    if (is_new) placed_[before] = here;
    return here;
  }

  at::Tensor place(const at::Tensor& host) {
    if (!host.defined()) return host;
    const auto* const data = static_cast<const char*>(host.unsafeGetTensorImpl()->data());
    for (const auto& [here, alias] : read_) {  // a view of an argument
      if (!alias.is_alias_of(host) || host.scalar_type() != here.scalar_type() || host.numel() == 0) continue;
      const auto* const base = static_cast<const char*>(here.storage().data());
      return here.as_strided(host.sizes(), host.strides(),
                             (data - base) / static_cast<std::int64_t>(host.element_size()));
    }
    at::Tensor here = at::empty_strided(host.sizes(), host.strides(), host.options().device(device_));
    kernel_.writes(here);
    on_host(here).copy_(host);
    return here;
  }

  IValue result(const IValue& value, const c10::Argument& returned) {
    if (returned.alias_info() != nullptr && returned.alias_info()->isWrite()) {
      for (std::size_t i = 0; i < arguments_.size(); ++i) {
        const auto* const alias = schema_.arguments()[i].alias_info();
        if (alias == nullptr || alias->beforeSets() != returned.alias_info()->beforeSets()) continue;
        made_ += tensors_of({arguments_[i]}).size();
        return arguments_[i];
      }
    }
    if (value.isTensor()) return placed(value.toTensor());
    if (!value.isTensorList()) return value;
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(placed(tensor));
    return list;
  }

  const c10::FunctionSchema& schema_;
  const std::vector<IValue> arguments_;
  const at::Device device_;
  Kernel kernel_;
  const bool is_random_;
  std::vector<std::pair<at::Tensor, at::Tensor>> read_, written_;  // here, on the host
  std::size_t made_ = 0;                                           // tensors of results that were looked at
  std::vector<at::Tensor> placed_;  // by result tensor: new memory that has it; undefined: it has none
};

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::size_t count = op.schema().arguments().size();
  Call(op, torch::jit::last(*stack, count)).run(op, *stack);
  if (op.schema().name() == "aten::_local_scalar_dense") {
    const int index = current_device();
    Machine::get().synchronize(index, current_stream(index));
  }
}

// What these two ask a backend for is what the operators without the suffix do on the CPU.
void convolution(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", "");
  fallback(op, stack);
}

void convolution_backward(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution_backward", "");
  const std::size_t given = op.schema().arguments().size() - 1, sizes_of_bias = 3;
  const at::Tensor gradient = torch::jit::peek(*stack, 0, given).toTensor();
  const IValue sizes(std::vector<std::int64_t>{gradient.size(1)});
  stack->insert(stack->end() - static_cast<std::ptrdiff_t>(given - sizes_of_bias), sizes);
  fallback(op, stack);
}

void manual_seed(std::int64_t seed) {
  for (int i = 0; i < kDevices; ++i)
    Machine::get().generator(i).set_current_seed(static_cast<std::uint64_t>(seed));
}

at::Tensor random_state(std::int64_t index) {
  return Machine::get().generator(static_cast<int>(index)).get_state();
}

void set_random_state(std::int64_t index, const at::Tensor& state) {
  Machine::get().generator(static_cast<int>(index)).set_state(state);
}

std::int64_t synchronizations() { return static_cast<std::int64_t>(counts().synchronizations); }
std::int64_t kernels() { return static_cast<std::int64_t>(counts().kernels); }

// For Python.
TORCH_LIBRARY(test_device, m) {
  m.def("manual_seed", manual_seed);
  m.def("random_state", random_state);
  m.def("set_random_state", set_random_state);
  m.def("fail_allocation", [](std::int64_t n) { fail_allocation(static_cast<std::size_t>(n)); });
  m.def("live_bytes", [] { return static_cast<std::int64_t>(live_bytes()); });
  m.def("synchronizations", synchronizations);
  m.def("kernels", kernels);
  m.def("begin_recording", begin_recording);
  m.def("end_recording", end_recording);
  m.def("replay", replay);
  m.def("forget_recording", forget_recording);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("unfold", TORCH_FN(at::native::unfold));
  m.impl("copy_", TORCH_FN(copy_));
  m.impl("convolution_overrideable", torch::CppFunction::makeFromBoxedFunction<&convolution>());
  m.impl("convolution_backward_overrideable",
         torch::CppFunction::makeFromBoxedFunction<&convolution_backward>());
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("resize_", TORCH_FN(resize_));
  m.impl("set_.source_Storage", TORCH_FN(at::native::set_));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage));
  m.impl("record_stream", TORCH_FN(record_stream));
}

// What CUDA casts in a region of autocast.
#define REKINDLE_TEST_HALF(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define REKINDLE_TEST_FLOAT(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define REKINDLE_TEST_FLOAT_BY_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define REKINDLE_TEST_WIDEST(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m){
    AT_FORALL_LOWER_PRECISION_FP(REKINDLE_TEST_HALF) AT_FORALL_FP32(REKINDLE_TEST_FLOAT)
        AT_FORALL_FP32_SET_OPT_DTYPE(REKINDLE_TEST_FLOAT_BY_DTYPE) AT_FORALL_PROMOTE(REKINDLE_TEST_WIDEST)}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

}  // namespace
}  // namespace rekindle::testing::device
