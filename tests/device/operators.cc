// The operators of the test device that make memory or views, and copies; all others run over the CPU
// (operator_call.h).
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

#include "tests/device/host_compiler.h"
#include "tests/device/machine.h"
#include "tests/device/operator_call.h"
#include "tests/device/recording.h"

namespace rekindle::testing::device {
namespace {

using c10::IValue;

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
  m.def("compile_kernel",
        [](const std::string& source, const std::string& name) { return compile_kernel(source, name); });
  m.def("launch_kernel", [](std::int64_t kernel, std::int64_t blocks, std::vector<std::int64_t> words) {
    launch_kernel(kernel, blocks, std::move(words));
  });
  m.def("host_language", [] { return std::string(host_language()); });
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
