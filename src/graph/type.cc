#include "src/graph/type.h"

#include <algorithm>
#include <array>

namespace rekindle::graph {
namespace {

struct DTypeFacts {
  const char* name;
  std::size_t size;
  bool differentiable;
};

constexpr std::array<DTypeFacts, kDTypes> kFacts{{
    {"undefined", 0, false},       {"float32", 4, true},
    {"uint8", 1, false},           {"int8", 1, false},
    {"uint16", 2, false},          {"int16", 2, false},
    {"int32", 4, false},           {"int64", 8, false},
    {"string", 0, false},          {"bool", 1, false},
    {"float16", 2, true},          {"float64", 8, true},
    {"uint32", 4, false},          {"uint64", 8, false},
    {"complex64", 8, true},        {"complex128", 16, true},
    {"bfloat16", 2, true},         {"float8_e4m3fn", 1, false},
    {"float8_e4m3fnuz", 1, false}, {"float8_e5m2", 1, false},
    {"float8_e5m2fnuz", 1, false},
}};

const DTypeFacts& facts(DType dtype) { return kFacts[static_cast<std::size_t>(dtype)]; }

}  // namespace

const char* dtype_name(DType dtype) { return facts(dtype).name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kFacts.size(); ++i) {
    if (name == kFacts[i].name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

std::size_t dtype_size(DType dtype) { return facts(dtype).size; }

bool is_float8(DType dtype) { return dtype >= DType::kFloat8E4M3FN && dtype <= DType::kFloat8E5M2FNUZ; }

bool is_differentiable(DType dtype) { return facts(dtype).differentiable; }

std::optional<std::vector<std::int64_t>> TensorType::static_sizes() const {
  if (!dims) return std::nullopt;
  std::vector<std::int64_t> sizes;
  for (const Dim& dim : *dims) {
    if (!dim.is_static()) return std::nullopt;
    sizes.push_back(dim.size);
  }
  return sizes;
}

bool have_same_shape(const TensorType& a, const TensorType& b) {
  const auto is_known = [](const Dim& dim) { return dim.is_static() || !dim.symbol.empty(); };
  return a.dims && b.dims && *a.dims == *b.dims && std::ranges::all_of(*a.dims, is_known);
}

}  // namespace rekindle::graph
