#include "session/plan/operation_cost.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace rekindle::session {
namespace {

constexpr double kOperationsPerSecond = 4e10, kBytesPerSecond = 8e9;
constexpr double kSecondsPerInstruction = 3e-6;

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool is_product(std::string_view op) {
  constexpr std::array<std::string_view, 9> kProducts{"MatMul", "Gemm", "Linear", "linear", "addmm",
                                                      "matmul", ".mm.", "bmm",    "Einsum"};
  return std::ranges::any_of(kProducts, [&](std::string_view name) { return contains(op, name); });
}

double per_first_dimension(const at::Tensor& tensor) {
  return static_cast<double>(tensor.numel()) / static_cast<double>(std::max<std::int64_t>(1, tensor.size(0)));
}

// Multiplications and additions of what multiplies matrices; 0 for other ops.
double operations_of(const Instruction& instruction, const std::vector<const at::Tensor*>& inputs,
                     double results) {
  if (instruction.node == nullptr || inputs.size() < 2) return 0;
  const std::string_view op = instruction.node->op_type();
  const at::Tensor &first = *inputs[0], &second = *inputs[1];
  if (op == "ConvolutionGradient" && inputs.size() > 2 &&
      inputs[2]->dim() > 0)  // of dy, x and weight: two products
    return 4 * static_cast<double>(first.numel()) * per_first_dimension(*inputs[2]);
  if (contains(op, "Conv") || contains(op, "conv"))
    return second.dim() == 0 ? 0 : 2 * results * per_first_dimension(second);
  if (contains(op, "ttention"))
    return second.dim() < 2 ? 0
                            : 4 * static_cast<double>(first.numel()) * static_cast<double>(second.size(-2));
  if (is_product(op)) return first.dim() == 0 ? 0 : 2 * results * static_cast<double>(first.size(-1));
  return 0;
}

}  // namespace

double estimated_seconds(const Programs& programs, const Instruction& instruction) {
  double bytes = 0, results = 0;
  std::vector<const at::Tensor*> inputs;
  for (const SlotId slot : instruction.inputs) {
    if (slot == kAbsentSlot || programs.slots[slot].storage == Storage::kHeld) continue;
    inputs.push_back(&programs.slots[slot].meta);
    bytes += static_cast<double>(inputs.back()->numel()) * static_cast<double>(inputs.back()->element_size());
  }
  for (const SlotId slot : instruction.outputs) {
    bytes += static_cast<double>(programs.slots[slot].bytes);
    results = std::max(results, static_cast<double>(programs.slots[slot].meta.numel()));
  }
  return kSecondsPerInstruction +
         std::max(bytes / kBytesPerSecond,
                  operations_of(instruction, inputs, results) / kOperationsPerSecond);
}

}  // namespace rekindle::session
