// IntTensor: what is known of a small integer tensor before the graph runs, element by element; and the ops
// that shape arithmetic is made of, computed on it. Internal to fold_shapes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/graph/graph.h"

namespace rekindle::passes {

// A number, a symbolic dimension (which is never negative), or nothing known.
struct IntElement {
  std::optional<std::int64_t> number;
  std::string symbol;

  static IntElement of(std::int64_t number) { return {number, {}}; }
  static IntElement of(const graph::Dim& dim) {
    return dim.is_static() ? of(dim.size) : IntElement{std::nullopt, dim.symbol};
  }
  // Both are known and equal.
  bool equals(const IntElement& other) const { return *this == other && (number || !symbol.empty()); }
  bool operator==(const IntElement&) const = default;
};

// Of dtype int64, int32 or bool (elements 0 and 1), row-major.
struct IntTensor {
  graph::DType dtype = graph::DType::kInt64;
  std::vector<std::int64_t> sizes;
  std::vector<IntElement> elements;

  // The numbers, when all are known.
  std::optional<std::vector<std::int64_t>> numbers() const;
  // Precondition: numbers().
  graph::ConstantPtr to_constant() const;
};

// Larger tensors are not followed: shapes are short.
inline constexpr std::int64_t kMaxIntElements = 1024;

// The product of `sizes`; more than kMaxIntElements when a size is negative or the product overflows.
std::int64_t numel_of(std::span<const std::int64_t> sizes);

// nullopt when the constant is of another dtype, or too large.
std::optional<IntTensor> int_tensor_of(const graph::ConstantTensor& constant);

// The output of `node` from what is known of its inputs (null: nothing is). nullopt when
// nothing is known of it. Arithmetic that overflows is not known. Shape and Size are not among
// the ops: they need types, not values.
std::optional<IntTensor> evaluate_ints(const graph::Node& node, std::span<const IntTensor* const> inputs);
// The part of evaluate_ints that works element by element; nullopt for other ops.
std::optional<IntTensor> evaluate_elementwise(const graph::Node& node,
                                              std::span<const IntTensor* const> inputs);

}  // namespace rekindle::passes
