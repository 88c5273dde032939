#include "src/graph/attribute.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "src/graph/element.h"

namespace rekindle::graph {
namespace {

bool same_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

}  // namespace

std::int64_t ConstantTensor::numel() const {
  std::int64_t product = 1;
  for (std::int64_t size : sizes) product *= size;
  return product;
}

std::optional<std::int64_t> byte_size(DType dtype, const std::vector<std::int64_t>& sizes) {
  auto product = static_cast<std::int64_t>(dtype_size(dtype));
  if (product == 0) return std::nullopt;
  bool empty = false;
  for (std::int64_t size : sizes) {
    if (size < 0) return std::nullopt;
    empty |= size == 0;
    // A zero dimension must not hide an overflow of the others: numel() multiplies in order.
    if (size != 0 && __builtin_mul_overflow(product, size, &product)) return std::nullopt;
  }
  return empty ? 0 : product;
}

TensorType type_of(const ConstantTensor& constant) {
  std::vector<Dim> dims;
  for (std::int64_t size : constant.sizes) dims.push_back(Dim::of(size));
  return {constant.dtype, std::move(dims)};
}

ConstantPtr make_int64_constant(const std::vector<std::int64_t>& values, std::vector<std::int64_t> sizes) {
  auto constant = std::make_shared<ConstantTensor>();
  constant->dtype = DType::kInt64;
  constant->sizes = std::move(sizes);
  assert(constant->numel() == static_cast<std::int64_t>(values.size()));
  for (std::int64_t value : values) append_int64(DType::kInt64, value, constant->bytes);
  return constant;
}

ConstantPtr make_scalar_constant(DType dtype, double value) {
  auto constant = std::make_shared<ConstantTensor>();
  constant->dtype = dtype;
  if (dtype == DType::kComplex64 || dtype == DType::kComplex128) {
    const DType part = dtype == DType::kComplex64 ? DType::kFloat32 : DType::kFloat64;
    append_double(part, value, constant->bytes);
    append_double(part, 0, constant->bytes);
  } else {
    append_double(dtype, value, constant->bytes);
  }
  return constant;
}

std::vector<std::int64_t> int_values(const ConstantTensor& constant) {
  assert(constant.dtype == DType::kInt64 || constant.dtype == DType::kInt32);
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < constant.numel(); ++i) values.push_back(read_int64(constant, i));
  return values;
}

double scalar_value(const ConstantTensor& constant) { return read_double(constant, 0); }

bool same_attribute(const Attribute& a, const Attribute& b) {
  if (a.index() != b.index()) return false;
  if (const auto* x = std::get_if<double>(&a)) return same_bits(*x, std::get<double>(b));
  if (const auto* x = std::get_if<std::vector<double>>(&a)) {
    return std::ranges::equal(*x, std::get<std::vector<double>>(b), same_bits);
  }
  if (const auto* x = std::get_if<ConstantPtr>(&a)) {
    const ConstantPtr& y = std::get<ConstantPtr>(b);
    return *x == y || (*x != nullptr && y != nullptr && **x == *y);
  }
  return a == b;
}

}  // namespace rekindle::graph
