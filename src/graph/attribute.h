// Attribute: a typed compile-time constant on a node. ConstantTensor: a literal tensor as bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "src/graph/type.h"

namespace rekindle::graph {

// A dense, row-major, little-endian literal. bytes.size() == product(sizes) * dtype_size(dtype).
struct ConstantTensor {
  DType dtype = DType::kUndefined;
  std::vector<std::int64_t> sizes;
  std::string bytes;

  bool operator==(const ConstantTensor&) const = default;
  std::int64_t numel() const;
};

// The product of `sizes`, times `dtype_size(dtype)` in bytes; nullopt when a size is negative, the dtype has
// no size or the product overflows.
std::optional<std::int64_t> byte_size(DType dtype, const std::vector<std::int64_t>& sizes);
// The dtype and the sizes of a constant, all dimensions static.
TensorType type_of(const ConstantTensor& constant);

// Shared because graphs are cloned often and constants can be large; never modified once made.
using ConstantPtr = std::shared_ptr<const ConstantTensor>;

ConstantPtr make_int64_constant(const std::vector<std::int64_t>& values, std::vector<std::int64_t> sizes);
// A scalar (rank 0) of any numeric dtype; `value` is converted with static_cast semantics (round to nearest
// for float16 and bfloat16).
ConstantPtr make_scalar_constant(DType dtype, double value);
// The values of an int64 or int32 constant. Precondition: such a dtype.
std::vector<std::int64_t> int_values(const ConstantTensor& constant);
// The first element of a numeric, non-complex constant as a double. Precondition: numel() >= 1.
double scalar_value(const ConstantTensor& constant);

class Graph;
// The body of a control-flow node; never modified once it is an attribute.
using GraphPtr = std::shared_ptr<const Graph>;

// ONNX float attributes are kept as double.
using Attribute = std::variant<std::int64_t, double, std::string, std::vector<std::int64_t>,
                               std::vector<double>, std::vector<std::string>, ConstantPtr, GraphPtr>;

// Equality by content: two ConstantPtr are equal when what they point to is; numbers are compared by their
// bits, so that 0.0 differs from -0.0 and a NaN equals itself. Two graphs are equal when they are one.
bool same_attribute(const Attribute& a, const Attribute& b);

}  // namespace rekindle::graph
