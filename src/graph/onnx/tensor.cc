#include "src/graph/onnx/tensor.h"

#include <cstring>

#include "src/graph/element.h"

namespace rekindle::graph {
namespace {

// The fields of TensorProto that can hold elements.
enum class Field { kRaw, kFloat, kInt32, kInt64, kDouble, kUInt64 };

struct Filled {
  Field field;
  int size;
};

std::vector<Filled> filled_fields(const onnx::TensorProto& t) {
  std::vector<Filled> filled;
  if (t.has_raw_data()) filled.push_back({Field::kRaw, 0});
  if (t.float_data_size() > 0) filled.push_back({Field::kFloat, t.float_data_size()});
  if (t.int32_data_size() > 0) filled.push_back({Field::kInt32, t.int32_data_size()});
  if (t.int64_data_size() > 0) filled.push_back({Field::kInt64, t.int64_data_size()});
  if (t.double_data_size() > 0) filled.push_back({Field::kDouble, t.double_data_size()});
  if (t.uint64_data_size() > 0) filled.push_back({Field::kUInt64, t.uint64_data_size()});
  return filled;
}

// The typed field that the ONNX specification assigns to a dtype.
Field field_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kComplex64:
      return Field::kFloat;
    case DType::kFloat64:
    case DType::kComplex128:
      return Field::kDouble;
    case DType::kInt64:
      return Field::kInt64;
    case DType::kUInt32:
    case DType::kUInt64:
      return Field::kUInt64;
    default:
      return Field::kInt32;
  }
}

template <typename Items>
void append_raw(const Items& items, std::string& bytes) {
  bytes.append(reinterpret_cast<const char*>(items.data()),
               static_cast<std::size_t>(items.size()) * sizeof(items[0]));
}

// Appends integers to a narrower dtype; false when one does not fit.
template <typename Items>
bool append_narrowed(DType dtype, const Items& items, std::string& bytes) {
  const bool is_half = dtype == DType::kFloat16 || dtype == DType::kBFloat16;  // stored as their bits
  const DType stored = is_half ? DType::kUInt16 : is_float8(dtype) ? DType::kUInt8 : dtype;
  ConstantTensor written{stored, {}, {}};
  for (const auto item : items) {
    written.bytes.clear();
    append_int64(written.dtype, static_cast<std::int64_t>(item), written.bytes);
    if (read_int64(written, 0) != static_cast<std::int64_t>(item)) return false;
    bytes += written.bytes;
  }
  return true;
}

// False when an element does not fit the dtype.
bool append_typed(DType dtype, const onnx::TensorProto& t, std::string& bytes) {
  switch (field_of(dtype)) {
    case Field::kFloat:
      append_raw(t.float_data(), bytes);
      return true;
    case Field::kDouble:
      append_raw(t.double_data(), bytes);
      return true;
    case Field::kInt64:
      append_raw(t.int64_data(), bytes);
      return true;
    case Field::kUInt64:
      return append_narrowed(dtype, t.uint64_data(), bytes);
    default:
      return append_narrowed(dtype, t.int32_data(), bytes);
  }
}

Status check_storage(const onnx::TensorProto& tensor, const std::string& what) {
  if (tensor.data_location() == onnx::TensorProto::EXTERNAL || tensor.external_data_size() > 0) {
    return unsupported(what + " keeps its data in another file; save the model with its data inside");
  }
  if (tensor.has_segment()) return unsupported(what + " is a segment of a tensor");
  return {};
}

}  // namespace

Result<DType> dtype_from_onnx(int element_type, const std::string& what) {
  if (!onnx::TensorProto::DataType_IsValid(element_type)) {
    return corruption(what + " has element type " + std::to_string(element_type) +
                      ", which ONNX does not have");
  }
  if (element_type == onnx::TensorProto::STRING || element_type >= kDTypes) {
    return unsupported(
        what + " has element type " +
        onnx::TensorProto::DataType_Name(static_cast<onnx::TensorProto::DataType>(element_type)) +
        ", which Rekindle does not have");
  }
  return static_cast<DType>(element_type);
}

Result<ConstantPtr> constant_from_onnx(const onnx::TensorProto& tensor, const std::string& what) {
  REKINDLE_RETURN_IF_ERROR(check_storage(tensor, what));
  auto constant = std::make_shared<ConstantTensor>();
  REKINDLE_ASSIGN_OR_RETURN(constant->dtype, dtype_from_onnx(tensor.data_type(), what));
  constant->sizes.assign(tensor.dims().begin(), tensor.dims().end());
  const auto size = byte_size(constant->dtype, constant->sizes);
  if (!size) return corruption(what + " has a bad dtype or dims");

  const std::vector<Filled> filled = filled_fields(tensor);
  if (filled.size() > 1) return corruption(what + " has its data in more than one field");
  if (!filled.empty() && filled[0].field == Field::kRaw) {
    constant->bytes = tensor.raw_data();
  } else if (!filled.empty()) {
    if (filled[0].field != field_of(constant->dtype))
      return corruption(what + " has its data in the field of another dtype");
    if (!append_typed(constant->dtype, tensor, constant->bytes))
      return corruption(what + " has an element out of range");
  }
  if (constant->bytes.size() != static_cast<std::size_t>(*size)) {
    return corruption(what + " has " + std::to_string(constant->bytes.size()) +
                      " bytes of data, its dims need " + std::to_string(*size));
  }
  if (constant->dtype == DType::kBool) {
    for (char& byte : constant->bytes) byte = byte != 0 ? 1 : 0;
  }
  return ConstantPtr(std::move(constant));
}

void constant_to_onnx(const ConstantTensor& constant, onnx::TensorProto& tensor) {
  tensor.set_data_type(static_cast<int>(constant.dtype));
  for (std::int64_t size : constant.sizes) tensor.add_dims(size);
  tensor.set_raw_data(constant.bytes);
}

}  // namespace rekindle::graph
