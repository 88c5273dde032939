#include "session/infer_types.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <unordered_map>

#include "session/op.h"
#include "session/tensor_types.h"
#include "src/graph/op_info.h"

namespace rekindle::session {
namespace {

// Shape arithmetic is small; larger constants are not needed to tell a shape.
constexpr std::size_t kMaxComputedBytes = 4096;

struct Known {
  at::Tensor meta, constant;
};

class Inference {
 public:
  explicit Inference(graph::Graph& graph) : graph_(graph) {}

  void run() {
    for (const graph::Value* input : graph_.inputs()) {
      const auto sizes = input->type().static_sizes();
      if (sizes && input->type().dtype != graph::DType::kUndefined) {
        known_[input].meta = meta(scalar_type_of(input->type().dtype), *sizes);
      }
    }
    for (const auto& node : graph_.nodes()) {
      try {
        visit(*node);
      } catch (const c10::Error&) {
        // The planner will meet the same error with real inputs, and reports it with the node's name.
      }
    }
  }

 private:
  static at::Tensor meta(at::ScalarType type, const Sizes& sizes) {
    return at::empty(sizes, at::TensorOptions().dtype(type).device(at::kMeta));
  }

  void visit(const graph::Node& node) {
    const Lower lower = find_lowering(node.domain(), node.op_type());
    if (lower == nullptr) return;
    std::vector<at::Tensor> metas, constants;
    bool all_constant = !graph::is_random(node);
    for (const graph::Value* input : node.inputs()) {
      const auto found = known_.find(input);
      if (input != nullptr && found == known_.end()) return;
      metas.push_back(input == nullptr ? at::Tensor() : found->second.meta);
      constants.push_back(input == nullptr ? at::Tensor() : found->second.constant);
      all_constant = all_constant && (input == nullptr || constants.back().defined());
    }
    const Lowering lowering = lower(LowerContext(node, std::move(metas), constants));
    if (!lowering.constants.empty() || (all_constant && output_bytes(lowering) <= kMaxComputedBytes)) {
      const std::vector<at::Tensor> values = run_once(lowering, constants);
      for (std::size_t i = 0; i < node.outputs().size(); ++i) define(node.output(i), {values.at(i), values[i]});
      return;
    }
    for (std::size_t i = 0; i < node.outputs().size(); ++i) {
      const Layout& layout = lowering.outputs.at(i);
      define(node.output(i), {meta(layout.dtype, layout.sizes), {}});
    }
  }

  void define(graph::Value* value, Known known) {
    graph::TensorType type{dtype_of(known.meta.scalar_type()), std::vector<graph::Dim>{}};
    for (const std::int64_t size : known.meta.sizes()) type.dims->push_back(graph::Dim::of(size));
    value->set_type(std::move(type));
    known_[value] = std::move(known);
  }

  graph::Graph& graph_;
  std::unordered_map<const graph::Value*, Known> known_;
};

}  // namespace

void infer_types(graph::Graph& graph) { Inference(graph).run(); }

}  // namespace rekindle::session
