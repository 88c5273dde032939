#include "src/fusion/body.h"

#include <array>

namespace rekindle::fusion {
namespace {

struct Entry {
  const char* name;
  std::size_t operands;
};

// In the order of Op.
constexpr std::array kEntries = {
    Entry{"cast", 1},
    Entry{"neg", 1},
    Entry{"absolute", 1},
    Entry{"reciprocal", 1},
    Entry{"square_root", 1},
    Entry{"exponential", 1},
    Entry{"logarithm", 1},
    Entry{"sine", 1},
    Entry{"cosine", 1},
    Entry{"hyperbolic_tangent", 1},
    Entry{"error_function", 1},
    Entry{"sigmoid", 1},
    Entry{"silu", 1},
    Entry{"relu", 1},
    Entry{"round_down", 1},
    Entry{"round_up", 1},
    Entry{"gelu", 1},
    Entry{"gelu_tanh", 1},
    Entry{"logical_not", 1},
    Entry{"is_nan", 1},
    Entry{"add", 2},
    Entry{"sub", 2},
    Entry{"mul", 2},
    Entry{"divide", 2},
    Entry{"maximum", 2},
    Entry{"minimum", 2},
    Entry{"equal", 2},
    Entry{"greater", 2},
    Entry{"greater_or_equal", 2},
    Entry{"less", 2},
    Entry{"less_or_equal", 2},
    Entry{"logical_and", 2},
    Entry{"logical_or", 2},
    Entry{"logical_xor", 2},
    Entry{"gelu_gradient", 2},
    Entry{"gelu_tanh_gradient", 2},
    Entry{"relu_gradient", 2},
    Entry{"tanh_gradient", 2},
    Entry{"sigmoid_gradient", 2},
    Entry{"silu_gradient", 2},
    Entry{"where", 3},
    Entry{"masked_scale", 3},
};
static_assert(kEntries.size() == static_cast<std::size_t>(Op::kMaskedScale) + 1);

}  // namespace

bool has_kernels(graph::DType dtype) {
  using enum graph::DType;
  for (const graph::DType known : {kFloat32, kFloat64, kFloat16, kBFloat16, kInt32, kInt64, kBool}) {
    if (dtype == known) return true;
  }
  return false;
}

const char* name_of(Op op) { return kEntries.at(static_cast<std::size_t>(op)).name; }

std::size_t operands_of(Op op) { return kEntries.at(static_cast<std::size_t>(op)).operands; }

}  // namespace rekindle::fusion
