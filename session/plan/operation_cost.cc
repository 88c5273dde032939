#include "session/plan/operation_cost.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace rekindle::session {
namespace {

struct Rates {
  double operations, bytes;  // a second
  double instruction;        // seconds that each takes besides
};

// Of a core with 512-bit vectors, as measured: 1.6e11 and 2.7e10. The ratio of cores with 256 bits is alike.
constexpr Rates kCore{1.5e11, 2.5e10, 3e-6};
// Of an H100, about two thirds of what its data sheet has (67 and 989 TFLOP/s, 3.35 TB/s).
constexpr Rates kGpu{4e13, 2.5e12, 5e-6}, kGpuInHalf{6e14, 2.5e12, 5e-6};

Rates rates_of(at::Device device, at::ScalarType dtype) {
  if (device.is_cpu()) return kCore;
  return at::isReducedFloatingType(dtype) ? kGpuInHalf : kGpu;
}

using Operands = std::vector<const at::Tensor*>;

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool is_product(std::string_view op) {
  constexpr std::array<std::string_view, 6> kProducts{"MatMul", "FusedMatMul",          "Gemm",
                                                      "Linear", "LinearWeightGradient", "Einsum"};
  constexpr std::array<std::string_view, 5> kOfTorch{"linear", "addmm", "matmul", ".mm.", "bmm"};
  const auto in_name = [&](std::string_view name) { return contains(op, name); };
  return std::ranges::find(kProducts, op) != kProducts.end() ||
         (op.starts_with("aten.") && std::ranges::any_of(kOfTorch, in_name));
}

double size_of(const at::Tensor& tensor) { return static_cast<double>(tensor.numel()); }

double per_first_dimension(const at::Tensor& tensor) {
  return size_of(tensor) / static_cast<double>(std::max<std::int64_t>(1, tensor.size(0)));
}

// Of a[b…, m, k] and b[b…, k, n], or either transposed: the sizes of a, b and the result have each of m, k
// and n twice. The same for a linear layer and its two gradients.
double operations_of_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& result) {
  double batch = 1;
  if (a.dim() > 2 && b.dim() > 2) {
    for (std::int64_t i = 0; i + 2 < result.dim(); ++i)
      batch *= static_cast<double>(std::max<std::int64_t>(1, result.size(i)));
  }
  return 2 * std::sqrt(size_of(a) * size_of(b) * size_of(result) / batch);
}

// Two products of q and v with all keys; five in the gradient, whose inputs begin with dy.
double operations_of_attention(std::string_view op, const Operands& inputs) {
  const bool is_gradient = contains(op, "Gradient") || contains(op, "backward");
  const std::size_t key = is_gradient ? 2 : 1;
  if (inputs.size() <= key || inputs[key]->dim() < 2) return 0;
  return (is_gradient ? 10 : 4) * size_of(*inputs[0]) * static_cast<double>(inputs[key]->size(-2));
}

// Multiplications and additions of what multiplies matrices; 0 for other ops.
double operations_of(std::string_view op, const Operands& inputs, const at::Tensor& result) {
  if (inputs.size() < 2) return 0;
  const at::Tensor &first = *inputs[0], &second = *inputs[1];
  if (op == "LinearCrossEntropyGradient" && inputs.size() > 5)  // two products of the gradient of the scores
    return 4 * size_of(*inputs[1]) * static_cast<double>(inputs[5]->size(-1));
  if (op == "ConvolutionGradient" && inputs.size() > 2 &&
      inputs[2]->dim() > 0)  // of dy, x and weight: two products
    return 4 * size_of(first) * per_first_dimension(*inputs[2]);
  if (contains(op, "Conv") || contains(op, "conv"))
    return second.dim() == 0 ? 0 : 2 * size_of(result) * per_first_dimension(second);
  if (contains(op, "ttention")) return operations_of_attention(op, inputs);
  if (!is_product(op)) return 0;
  const bool has_sum_first = contains(op, "addmm") && inputs.size() > 2;
  return operations_of_product(has_sum_first ? second : first, has_sum_first ? *inputs[2] : second, result);
}

}  // namespace

double estimated_seconds(const Programs& programs, const Instruction& instruction, at::Device device) {
  double bytes = 0;
  Operands inputs;
  for (const SlotId slot : instruction.inputs) {
    if (slot == kAbsentSlot || programs.slots[slot].storage == Storage::kHeld) continue;
    inputs.push_back(&programs.slots[slot].meta);
    bytes += size_of(*inputs.back()) * static_cast<double>(inputs.back()->element_size());
  }
  const at::Tensor* result = nullptr;  // the largest
  for (const SlotId slot : instruction.outputs) {
    const Slot& made = programs.slots[slot];
    bytes += static_cast<double>(made.bytes);
    if (result == nullptr || made.meta.numel() > result->numel()) result = &made.meta;
  }
  double operations = 0;
  if (instruction.node != nullptr && result != nullptr)
    operations = operations_of(instruction.node->op_type(), inputs, *result);
  const Rates rates = rates_of(device, result == nullptr ? at::kFloat : result->scalar_type());
  return rates.instruction + std::max(bytes / rates.bytes, operations / rates.operations);
}

}  // namespace rekindle::session
