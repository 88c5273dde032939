#include "tests/device/operator_call.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <array>

#include "tests/device/machine.h"
#include "tests/device/recording.h"

namespace rekindle::testing::device {

using c10::IValue;

at::Device wanted(std::optional<at::Device> device) {
  return device && device->has_index() ? *device : testing::device::device(current_device());
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

namespace {

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

}  // namespace

namespace {

bool has_mask(c10::ArrayRef<IValue> arguments) {
  return std::ranges::any_of(arguments, [](const IValue& value) {
    if (!value.isOptionalTensorList()) return false;
    const auto indices = value.toOptionalTensorVector();
    return std::ranges::any_of(indices, [](const auto& index) {
      return index && (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte);
    });
  });
}

// Whether the host waits, on a GPU, as for a number or for how many elements a mask chooses.
bool waits(const std::string& name, c10::ArrayRef<IValue> arguments) {
  constexpr std::array<std::string_view, 3> kAlways{"aten::_local_scalar_dense", "aten::nonzero",
                                                    "aten::masked_select"};
  return std::ranges::find(kAlways, name) != kAlways.end() || has_mask(arguments);
}

}  // namespace

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::size_t count = op.schema().arguments().size();
  const bool has_to_wait = waits(op.schema().name(), torch::jit::last(*stack, count));
  Call(op, torch::jit::last(*stack, count)).run(op, *stack);
  if (has_to_wait) {
    const int index = current_device();
    Machine::get().synchronize(index, current_stream(index));
  }
}

}  // namespace rekindle::testing::device
