#include "session/lower/evaluate.h"

#include "session/lower/op.h"
#include "session/lower/tensor_types.h"
#include "src/graph/op_info.h"

namespace rekindle::session {
Result<std::vector<graph::ConstantPtr>> evaluate(const graph::Node& node, std::size_t max_bytes) {
  const Lower lower = find_lowering(node.domain(), node.op_type());
  if (lower == nullptr || graph::is_random(node)) return unsupported(node.op_type() + " cannot be folded");
  try {
    std::vector<at::Tensor> metas, constants;
    for (const graph::Value* input : node.inputs()) {
      const graph::ConstantPtr constant = input == nullptr ? nullptr : graph::constant_of(input);
      if (input != nullptr && constant == nullptr)
        return unsupported("'" + input->name() + "' is not a constant");
      constants.push_back(constant == nullptr ? at::Tensor() : tensor_of(*constant));
      metas.push_back(constants.back());
    }
    const Lowering lowering = lower(LowerContext(node, metas, constants));
    const std::size_t bytes = output_bytes(lowering);
    if (bytes > max_bytes)
      return unsupported(node.op_type() + " would fold to " + std::to_string(bytes) + " bytes");
    std::vector<graph::ConstantPtr> results;
    for (const at::Tensor& tensor : run_once(lowering, constants)) {
      if (results.size() < node.outputs().size()) results.push_back(constant_of(tensor));
    }
    return results;
  } catch (const c10::Error& error) {
    return invalid_argument(error.what_without_backtrace());
  }
}

}  // namespace rekindle::session
