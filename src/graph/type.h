// DType, Dim and TensorType: what is known of a value before it exists.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rekindle::graph {

// Numbers are ONNX's TensorProto.DataType. DO NOT CHANGE THESE VALUES: they are stored.
enum class DType : std::uint8_t {
  kUndefined = 0,
  kFloat32 = 1,
  kUInt8 = 2,
  kInt8 = 3,
  kUInt16 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kString = 8,
  kBool = 9,
  kFloat16 = 10,
  kFloat64 = 11,
  kUInt32 = 12,
  kUInt64 = 13,
  kComplex64 = 14,
  kComplex128 = 15,
  kBFloat16 = 16,
  kFloat8E4M3FN = 17,
  kFloat8E4M3FNUZ = 18,
  kFloat8E5M2 = 19,
  kFloat8E5M2FNUZ = 20,
};

// One past the last.
inline constexpr int kDTypes = 21;

// "float32", "int64", ...; "undefined" for kUndefined.
const char* dtype_name(DType dtype);
// Inverse of dtype_name; nullopt for an unknown name.
std::optional<DType> dtype_from_name(std::string_view name);
// Bytes per element; 0 for kUndefined and kString.
std::size_t dtype_size(DType dtype);
// The four float8 types: a byte each, written in text as its bits.
bool is_float8(DType dtype);
// float16, bfloat16, float32, float64, complex64, complex128: the types a gradient can have.
bool is_differentiable(DType dtype);

// One dimension: a size, a symbol, or unknown (no size and an empty symbol).
struct Dim {
  std::int64_t size = -1;
  std::string symbol;

  static Dim of(std::int64_t size) { return {size, {}}; }
  static Dim named(std::string symbol) { return {-1, std::move(symbol)}; }
  bool is_static() const { return size >= 0; }
  bool operator==(const Dim&) const = default;
};

// dtype kUndefined and dims nullopt mean "not known yet"; an empty dims vector is a scalar.
struct TensorType {
  DType dtype = DType::kUndefined;
  std::optional<std::vector<Dim>> dims;

  bool operator==(const TensorType&) const = default;
  // The sizes, when every dimension is static.
  std::optional<std::vector<std::int64_t>> static_sizes() const;
};

// Tells whether both shapes are known and equal. Equal symbols are: each has one value in a graph.
bool have_same_shape(const TensorType& a, const TensorType& b);

}  // namespace rekindle::graph
