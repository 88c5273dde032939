#include "session/lower/operator_arguments.h"

#include <ATen/ops/item.h>

#include "session/lower/tensor_types.h"

namespace rekindle::session {
namespace {

using c10::IValue;
using c10::TypeKind;

// More tensors than any list has; a corrupt count must not become memory.
constexpr std::int64_t kMaxListLength = 1 << 16;

template <typename T>
const T& as(const graph::Attribute& attribute, const char* what) {
  const T* value = std::get_if<T>(&attribute);
  TORCH_CHECK(value != nullptr, "is not ", what);
  return *value;
}

at::Tensor tensor_in(const graph::Attribute& attribute, const char* what) {
  const auto& constant = as<graph::ConstantPtr>(attribute, what);
  TORCH_CHECK(constant != nullptr, "is not ", what);
  return tensor_of(*constant);
}

at::Scalar number_in(const graph::Attribute& attribute) {
  const at::Tensor tensor = tensor_in(attribute, "a number");
  if (tensor.dim() == 1 && tensor.numel() == 2) {  // a complex one
    return c10::complex<double>(tensor[0].item<double>(), tensor[1].item<double>());
  }
  TORCH_CHECK(tensor.numel() == 1, "is ", tensor.numel(), " numbers, not one");
  return tensor.item();
}

IValue list_value(const graph::Attribute& attribute, const c10::Type& element) {
  switch (element.kind()) {
    case TypeKind::IntType:
      return as<std::vector<std::int64_t>>(attribute, "a list of ints");
    case TypeKind::BoolType: {
      c10::List<bool> flags;
      for (const std::int64_t flag : as<std::vector<std::int64_t>>(attribute, "a list of bools"))
        flags.push_back(flag != 0);
      return flags;
    }
    case TypeKind::FloatType: {
      const at::Tensor numbers = tensor_in(attribute, "a list of floats").to(at::kDouble).contiguous();
      const auto* data = numbers.const_data_ptr<double>();
      return std::vector<double>(data, data + numbers.numel());
    }
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "is a list of ", element.str());
  }
}

}  // namespace

IValue argument_value(const graph::Attribute& attribute, const c10::Type& type) {
  switch (type.kind()) {
    case TypeKind::OptionalType:
      return argument_value(attribute, *type.castRaw<c10::OptionalType>()->getElementType());
    case TypeKind::IntType:
      return as<std::int64_t>(attribute, "an int");
    case TypeKind::BoolType:
      return as<std::int64_t>(attribute, "a bool") != 0;
    case TypeKind::FloatType:
      return number_in(attribute).toDouble();
    case TypeKind::NumberType:
      return number_in(attribute);
    case TypeKind::StringType:
      return as<std::string>(attribute, "a string");
    case TypeKind::DeviceObjType:
      return c10::Device(as<std::string>(attribute, "a device"));
    case TypeKind::ListType:
      return list_value(attribute, *type.castRaw<c10::ListType>()->getElementType());
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "is of type ", type.str());
  }
}

std::size_t list_length(const graph::Attribute& attribute) {
  const std::int64_t count = as<std::int64_t>(attribute, "a length");
  TORCH_CHECK(count >= 0 && count <= kMaxListLength, "has length ", count);
  return static_cast<std::size_t>(count);
}

bool takes_numbers(const c10::Type& type) {
  const auto* list = type.castRaw<c10::ListType>();
  const TypeKind kind = list == nullptr ? type.kind() : list->getElementType()->kind();
  return kind == TypeKind::IntType || (kind == TypeKind::NumberType && list == nullptr);
}

IValue computed_argument(const at::Tensor& tensor, const c10::Type& type) {
  TORCH_CHECK(tensor.defined() && at::isIntegralType(tensor.scalar_type(), /*includeBool=*/false),
              "numbers of an argument are missing");
  if (type.kind() != TypeKind::ListType) {
    TORCH_CHECK(tensor.numel() == 1, "is ", tensor.numel(), " numbers, not one");
    return type.kind() == TypeKind::IntType ? IValue(tensor.item().toLong()) : IValue(tensor.item());
  }
  const at::Tensor numbers = tensor.cpu().to(at::kLong).contiguous();
  const auto* data = numbers.const_data_ptr<std::int64_t>();
  return std::vector<std::int64_t>(data, data + numbers.numel());
}

}  // namespace rekindle::session
