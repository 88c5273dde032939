#include "session/lower/tensor_types.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <array>
#include <cstring>

#include "session/lower/op.h"

namespace rekindle::session {
namespace {

using graph::DType;

constexpr std::array<std::pair<DType, at::ScalarType>, 19> kTypes{{
    {DType::kFloat32, at::kFloat},
    {DType::kFloat64, at::kDouble},
    {DType::kFloat16, at::kHalf},
    {DType::kBFloat16, at::kBFloat16},
    {DType::kInt64, at::kLong},
    {DType::kInt32, at::kInt},
    {DType::kInt16, at::kShort},
    {DType::kInt8, at::kChar},
    {DType::kUInt8, at::kByte},
    {DType::kBool, at::kBool},
    {DType::kComplex64, at::kComplexFloat},
    {DType::kComplex128, at::kComplexDouble},
    {DType::kUInt16, at::kUInt16},
    {DType::kUInt32, at::kUInt32},
    {DType::kUInt64, at::kUInt64},
    {DType::kFloat8E4M3FN, at::kFloat8_e4m3fn},
    {DType::kFloat8E4M3FNUZ, at::kFloat8_e4m3fnuz},
    {DType::kFloat8E5M2, at::kFloat8_e5m2},
    {DType::kFloat8E5M2FNUZ, at::kFloat8_e5m2fnuz},
}};

}  // namespace

at::ScalarType scalar_type_of(DType dtype) {
  for (const auto& [ours, theirs] : kTypes) {
    if (ours == dtype) return theirs;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(static_cast<int>(dtype) < graph::kDTypes, "element type ",
                              static_cast<int>(dtype), " is not supported");
  TORCH_CHECK_NOT_IMPLEMENTED(false, "tensors of type ", graph::dtype_name(dtype), " are not supported");
}

DType dtype_of(at::ScalarType type) {
  for (const auto& [ours, theirs] : kTypes) {
    if (theirs == type) return ours;
  }
  return DType::kUndefined;
}

at::Tensor tensor_of(const graph::ConstantTensor& constant) {
  at::Tensor tensor = at::empty(constant.sizes, at::TensorOptions().dtype(scalar_type_of(constant.dtype)));
  TORCH_CHECK(tensor.nbytes() == constant.bytes.size(), "a constant holds ", constant.bytes.size(),
              " bytes where its type needs ", tensor.nbytes());
  if (!constant.bytes.empty())
    std::memcpy(tensor.mutable_data_ptr(), constant.bytes.data(), constant.bytes.size());
  return tensor;
}

at::Tensor empty_of(const Layout& layout, at::Device device) {
  const auto options = at::TensorOptions().dtype(layout.dtype).device(device);
  return layout.strides ? at::empty_strided(layout.sizes, *layout.strides, options)
                        : at::empty(layout.sizes, options);
}

at::Tensor meta_of(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
}

graph::ConstantPtr constant_of(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.cpu().contiguous();
  auto constant = std::make_shared<graph::ConstantTensor>();
  constant->dtype = dtype_of(dense.scalar_type());
  constant->sizes = dense.sizes().vec();
  if (dense.nbytes() > 0)
    constant->bytes.assign(static_cast<const char*>(dense.const_data_ptr()), dense.nbytes());
  return constant;
}

bool is_float8(at::ScalarType type) { return graph::is_float8(dtype_of(type)); }

}  // namespace rekindle::session
