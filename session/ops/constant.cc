// Ops whose result is known while planning: literals and everything that only asks for a shape.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "session/lower/op.h"
#include "session/lower/tensor_types.h"

namespace rekindle::session {
namespace {

Lowering known(at::Tensor tensor) {
  Lowering lowering;
  lowering.constants.push_back(std::move(tensor));
  return lowering;
}

// Larger results are written at each run, not kept: types are inferred at sizes that no model has.
constexpr std::int64_t kMostBytesKept = 1 << 24;

bool is_kept(const Sizes& sizes, at::ScalarType dtype) {
  double bytes = static_cast<double>(c10::elementSize(dtype));
  for (const std::int64_t size : sizes) bytes *= static_cast<double>(size);
  return bytes <= kMostBytesKept;
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
  const at::Tensor value =
      attribute == nullptr ? at::zeros({}) : tensor_of(*std::get<graph::ConstantPtr>(*attribute)).reshape({});
  // full() has no kernel for every type; expand and copy_ need none.
  if (is_kept(sizes, value.scalar_type())) return known(value.expand(sizes).contiguous());
  return computed(value.scalar_type(), sizes,
                  [value](const Args& args) { args.out().copy_(value.expand_as(args.out())); });
}

Lowering lower_range(const LowerContext& context) {
  const at::Scalar start = context.constant(0).item(), end = context.constant(1).item(),
                   step = context.constant(2).item();
  const at::ScalarType dtype = context.dtype(0);
  const at::Tensor meta = at::arange(start, end, step, at::TensorOptions().dtype(dtype).device(at::kMeta));
  if (!is_kept(meta.sizes().vec(), dtype)) {
    return computed(dtype, meta.sizes().vec(), [=](const Args& args) {
      args.out().copy_(at::arange(start, end, step, args.out().options()));
    });
  }
  return known(at::arange(start, end, step, at::TensorOptions().dtype(dtype)));
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

Lowering lower_copy(const LowerContext& context) {
  return computed(context.dtype(0), context.sizes(0), [](const Args& args) { args.out().copy_(args.in(0)); });
}

}  // namespace

REKINDLE_OP("", "Constant", lower_constant);
REKINDLE_OP("", "ConstantOfShape", lower_constant_of_shape);
REKINDLE_OP("", "EyeLike", lower_eye_like);
REKINDLE_OP("", "Range", lower_range);
REKINDLE_OP("", "Shape", lower_shape);
REKINDLE_OP("", "Size", lower_size);
REKINDLE_OP("rekindle", "Copy", lower_copy);
REKINDLE_OP("rekindle", "ZerosLike", lower_zeros_like);

}  // namespace rekindle::session
