// Ops whose result is known while planning: literals and everything that only asks for a shape.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "session/op.h"
#include "session/tensor_types.h"

namespace rekindle::session {
namespace {

Lowering known(at::Tensor tensor) {
  Lowering lowering;
  lowering.constants.push_back(std::move(tensor));
  return lowering;
}

at::Tensor int64_tensor(const Sizes& values, const Sizes& sizes) {
  at::Tensor tensor = at::empty(sizes, at::TensorOptions().dtype(at::kLong));
  std::copy(values.begin(), values.end(), tensor.mutable_data_ptr<std::int64_t>());
  return tensor;
}

Lowering lower_constant(const LowerContext& context) {
  const graph::ConstantPtr constant = graph::constant_of(context.node().output());
  TORCH_CHECK(constant != nullptr, "a Constant without a tensor value");
  return known(tensor_of(*constant));
}

// Shape's optional start and end select a range of dimensions (opset 15).
Lowering lower_shape(const LowerContext& context) {
  const Sizes sizes = context.sizes(0);
  const auto rank = static_cast<std::int64_t>(sizes.size());
  const auto position = [&](std::int64_t at) {
    return std::clamp<std::int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  const std::int64_t start = position(context.int_attribute("start", 0)),
                     end = position(context.int_attribute("end", rank));
  const Sizes part(sizes.begin() + start, sizes.begin() + std::max(start, end));
  return known(int64_tensor(part, {static_cast<std::int64_t>(part.size())}));
}

Lowering lower_size(const LowerContext& context) {
  return known(int64_tensor({context.meta(0).numel()}, {}));
}

Lowering lower_constant_of_shape(const LowerContext& context) {
  const auto* attribute = context.node().attribute("value");
  const Sizes sizes = context.ints(0);
  if (attribute == nullptr) return known(at::zeros(sizes, at::TensorOptions().dtype(at::kFloat)));
  const at::Tensor value = tensor_of(*std::get<graph::ConstantPtr>(*attribute));
  // full() has no kernel for every type; expand needs none.
  return known(value.reshape({}).expand(sizes).contiguous());
}

Lowering lower_range(const LowerContext& context) {
  return known(at::arange(context.constant(0).item(), context.constant(1).item(), context.constant(2).item(),
                          at::TensorOptions().dtype(context.dtype(0))));
}

Lowering lower_eye_like(const LowerContext& context) {
  const auto type = context.int_attribute("dtype", 0);
  const Sizes sizes = context.sizes(0);
  TORCH_CHECK(sizes.size() == 2, "EyeLike of a tensor of rank ", sizes.size());
  const auto options = at::TensorOptions().dtype(type == 0 ? context.dtype(0)
                                                           : scalar_type_of(static_cast<graph::DType>(type)));
  const std::int64_t k = context.int_attribute("k", 0);
  if (k == 0) return known(at::eye(sizes[0], sizes[1], options));
  at::Tensor matrix = at::zeros(sizes, options);
  if (-sizes[0] < k && k < sizes[1]) matrix.diagonal(k).fill_(1);
  return known(matrix);
}

// Zeros are written, not kept: they can be as large as an activation.
Lowering lower_zeros_like(const LowerContext& context) {
  return computed(context.dtype(0), context.sizes(0), [](const Args& args) { args.out().zero_(); });
}

}  // namespace

REKINDLE_OP("", "Constant", lower_constant);
REKINDLE_OP("", "ConstantOfShape", lower_constant_of_shape);
REKINDLE_OP("", "EyeLike", lower_eye_like);
REKINDLE_OP("", "Range", lower_range);
REKINDLE_OP("", "Shape", lower_shape);
REKINDLE_OP("", "Size", lower_size);
REKINDLE_OP("rekindle", "ZerosLike", lower_zeros_like);

}  // namespace rekindle::session
