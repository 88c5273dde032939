#include "session/lower/torch_operator.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/enum_tag.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/item.h>

#include <algorithm>
#include <array>

#include "session/lower/argument_checks.h"
#include "session/lower/autocast_scope.h"
#include "session/lower/eager_kernel.h"
#include "session/lower/missing_meta.h"
#include "session/lower/operator_arguments.h"
#include "session/lower/tensor_types.h"
#include "src/graph/torch_node.h"

namespace rekindle::session {
namespace {

using c10::IValue;
using c10::TypeKind;

// Operators that read files or talk to other processes: a graph must not.
constexpr std::array<std::string_view, 4> kRefusedNamespaces{"c10d", "_c10d_functional", "_dtensor",
                                                             "symm_mem"};
constexpr std::array<std::string_view, 2> kRefusedOperators{"aten.from_file.", "aten._pin_memory."};

// "aten.conv2d.default" -> {"aten::conv2d", ""}.
c10::OperatorName operator_name(const std::string& op_type) {
  const auto first = op_type.find('.'), last = op_type.rfind('.');
  TORCH_CHECK(first != std::string::npos && first < last, "'", op_type,
              "' does not name an operator, such as aten.add.Tensor");
  const std::string space = op_type.substr(0, first), overload = op_type.substr(last + 1);
  const bool refused = std::ranges::find(kRefusedNamespaces, space) != kRefusedNamespaces.end() ||
                       std::ranges::any_of(kRefusedOperators,
                                           [&](std::string_view name) { return op_type.starts_with(name); });
  TORCH_CHECK_NOT_IMPLEMENTED(!refused, "operator ", op_type, " does more than compute tensors from tensors");
  return {space + "::" + op_type.substr(first + 1, last - first - 1), overload == "default" ? "" : overload};
}

bool is_tensor_list(const c10::Type& type) {
  const auto* list = type.castRaw<c10::ListType>();
  return list != nullptr && list->getElementType()->kind() == TypeKind::TensorType;
}

bool is_optional_tensor_list(const c10::Type& type) {
  const auto* list = type.castRaw<c10::ListType>();
  if (list == nullptr) return false;
  const auto* element = list->getElementType()->castRaw<c10::OptionalType>();
  return element != nullptr && element->getElementType()->kind() == TypeKind::TensorType;
}

// Whether an input has the argument's numbers.
bool is_computed(const graph::Node& node, const c10::FunctionSchema& schema, const c10::Argument& formal) {
  const auto positions = node.ints_attribute("_computed", {});
  return std::ranges::any_of(positions, [&](std::int64_t i) {
    return i >= 0 && static_cast<std::size_t>(i) < schema.arguments().size() &&
           schema.arguments()[static_cast<std::size_t>(i)].name() == formal.name();
  });
}

void append_tensors(IValue&& value, std::vector<at::Tensor>& tensors) {
  if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(tensor);
  } else {
    tensors.push_back(std::move(value).toTensor());
  }
}

}  // namespace

TorchOperator::TorchOperator(const graph::Node& node, at::Device device)
    : name_(node.op_type()), device_(device) {
  handle_ = c10::Dispatcher::singleton().findSchema(operator_name(name_));
  TORCH_CHECK_NOT_IMPLEMENTED(handle_.has_value(), "there is no operator ", name_,
                              "; import the library that defines it, or use another release of torch");
  check_schema(node);
  std::size_t next = 0;
  for (const c10::Argument& formal : handle_->schema().arguments()) {
    try {
      arguments_.push_back(bind(node, formal, next));
      arguments_.back().is_device = formal.name() == "device";
      arguments_.back().is_optional = formal.type()->kind() == TypeKind::OptionalType;
    } catch (c10::Error& error) {
      error.add_context("argument '" + formal.name() + "' of " + name_);
      throw;
    }
  }
  TORCH_CHECK(next >= node.inputs().size(), name_, " takes ", next, " tensors here, but the node has ",
              node.inputs().size());
  check_statistics(node);
  const auto dtypes = node.ints_attribute("_autocast", {});
  const bool known =
      std::ranges::all_of(dtypes, [](std::int64_t dtype) { return dtype >= 0 && dtype < graph::kDTypes; });
  TORCH_CHECK(known, "_autocast of ", name_, " names no dtypes");
  if (!dtypes.empty()) autocast_ = scalar_type_of(static_cast<graph::DType>(dtypes[0]));
}

// The schemas of the normalizations do not say that they write to their running statistics. Functional
// variants do not.
void TorchOperator::check_statistics(const graph::Node& node) const {
  if (handle_->schema().name().ends_with("_functional")) return;
  const auto mean = handle_->schema().argumentIndexWithName("running_mean");
  if (!mean || node.input(arguments_[static_cast<std::size_t>(*mean)].first) == nullptr) return;
  for (const char* flag : {"training", "train", "use_input_stats"}) {
    const auto index = handle_->schema().argumentIndexWithName(flag);
    const bool set = index && arguments_[static_cast<std::size_t>(*index)].value.isBool() &&
                     arguments_[static_cast<std::size_t>(*index)].value.toBool();
    TORCH_CHECK_NOT_IMPLEMENTED(!set, name_, " writes to its running statistics");
  }
}

void TorchOperator::check_schema(const graph::Node& node) const {
  const c10::FunctionSchema& schema = handle_->schema();
  TORCH_CHECK_NOT_IMPLEMENTED(!schema.is_mutable(), name_, " writes to its inputs");
  TORCH_CHECK_NOT_IMPLEMENTED(!schema.returns().empty() && !schema.is_vararg() && !schema.is_varret(), name_,
                              " returns nothing, or takes any number of arguments");
  for (const c10::Argument& result : schema.returns()) {
    const bool tensors = result.type()->kind() == TypeKind::TensorType || is_tensor_list(*result.type());
    TORCH_CHECK_NOT_IMPLEMENTED(tensors, name_, " returns ", result.type()->str(), ", not a tensor");
  }
  const bool draws = handle_->hasTag(at::Tag::nondeterministic_seeded);
  TORCH_CHECK(!draws || node.int_attribute("_random", 0) != 0, name_,
              " draws random numbers, but the node does not say so");
  for (const auto& [name, attribute] : node.attributes()) {
    TORCH_CHECK(name.starts_with('_') || schema.argumentIndexWithName(name).has_value(), name_,
                " has no argument '", name, "'");
  }
}

TorchOperator::Argument TorchOperator::bind(const graph::Node& node, const c10::Argument& formal,
                                            std::size_t& next) {
  c10::TypePtr type = formal.type();
  const auto* optional = type->castRaw<c10::OptionalType>();
  const c10::TypePtr inner = optional == nullptr ? type : optional->getElementType();
  if (inner->kind() == TypeKind::TensorType) return {.from = From::kTensor, .first = next++, .count = 1};
  if (is_computed(node, handle_->schema(), formal)) {
    TORCH_CHECK_NOT_IMPLEMENTED(takes_numbers(*inner), "is computed, but of type ", inner->str());
    number_inputs_.push_back(next);
    return {.from = From::kNumbers, .first = next++, .count = 1, .type = inner};
  }
  const graph::Attribute* attribute = node.attribute(formal.name());
  if (attribute == nullptr) {
    TORCH_CHECK(optional != nullptr, "is missing");
    return {};
  }
  const bool tensors = is_tensor_list(*inner), optional_tensors = is_optional_tensor_list(*inner);
  if (!tensors && !optional_tensors) return {.value = argument_value(*attribute, *type)};
  const std::size_t first = next;
  next += list_length(*attribute);
  return {.from = tensors ? From::kTensors : From::kOptionalTensors, .first = first, .count = next - first};
}

IValue TorchOperator::gather(const Argument& argument, const std::vector<at::Tensor>& inputs) const {
  static const at::Tensor kNone;
  const auto input = [&](std::size_t i) -> const at::Tensor& {
    return i < inputs.size() ? inputs[i] : kNone;
  };
  switch (argument.from) {
    case From::kConstant:
      return argument.value;
    case From::kTensor: {
      const at::Tensor& tensor = input(argument.first);
      return tensor.defined() ? IValue(tensor) : IValue();
    }
    case From::kNumbers:
      return computed_argument(input(argument.first), *argument.type);
    case From::kTensors: {
      c10::List<at::Tensor> list;
      for (std::size_t i = 0; i < argument.count; ++i) list.push_back(input(argument.first + i));
      return list;
    }
    case From::kOptionalTensors: {
      c10::List<std::optional<at::Tensor>> list;
      for (std::size_t i = 0; i < argument.count; ++i) {
        const at::Tensor& tensor = input(argument.first + i);
        list.push_back(tensor.defined() ? std::optional(tensor) : std::nullopt);
      }
      return list;
    }
  }
  return {};
}

void TorchOperator::replace(const std::string& argument, IValue value) {
  const auto index = handle_->schema().argumentIndexWithName(argument);
  TORCH_CHECK(index.has_value(), name_, " has no argument '", argument, "'");
  Argument& replaced = arguments_[static_cast<std::size_t>(*index)];
  replaced.from = From::kConstant;
  replaced.value = std::move(value);
}

std::vector<at::Tensor> TorchOperator::call(const std::vector<at::Tensor>& inputs) const {
  return call_on(inputs, device_);
}

std::vector<at::Tensor> TorchOperator::call_on(const std::vector<at::Tensor>& inputs,
                                               at::Device device) const {
  torch::jit::Stack stack;
  stack.reserve(arguments_.size());
  for (const Argument& argument : arguments_) {
    stack.push_back(argument.is_device ? IValue(device) : gather(argument, inputs));
    TORCH_CHECK(!stack.back().isNone() || argument.is_optional, "argument '",
                handle_->schema().arguments()[stack.size() - 1].name(), "' of ", name_, " is missing");
  }
  if (const ArgumentCheck check = argument_check(name_)) check(stack);
  if (const MetaKernel kernel = device == at::kMeta ? missing_meta(name_) : nullptr) {
    if (auto results = kernel(stack); !results.empty()) return results;
  }
  if (const EagerKernel kernel = device.is_cuda() ? eager_kernel(name_) : nullptr) {
    if (auto results = kernel(stack); !results.empty()) return results;
  }
  std::optional<AutocastScope> autocast;
  if (autocast_ && device != at::kMeta) autocast.emplace(device.type(), *autocast_);
  handle_->callBoxed(stack);
  autocast.reset();
  std::vector<at::Tensor> results;
  results.reserve(stack.size());
  for (IValue& value : stack) append_tensors(std::move(value), results);
  return results;
}

std::vector<at::Tensor> TorchOperator::call_meta(const std::vector<at::Tensor>& metas) const {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::NoGradGuard no_grad;
  try {
    if (!autocast_) return call_on(metas, at::Device(at::kMeta));
    std::vector<at::Tensor> cast = metas;  // meta tensors know no autocast
    for (at::Tensor& meta : cast) {
      if (meta.defined() && meta.is_floating_point() && meta.scalar_type() != at::kDouble)
        meta = meta.to(*autocast_);
    }
    return call_on(cast, at::Device(at::kMeta));
  } catch (const std::exception& error) {
    const auto* known = dynamic_cast<const c10::Error*>(&error);
    TORCH_CHECK_NOT_IMPLEMENTED(false, name_, " does not tell its results' layout without data: ",
                                known == nullptr ? error.what() : known->what_without_backtrace());
  }
}

}  // namespace rekindle::session
