// Replaces shape arithmetic by its result: Shape and Size of values whose type is known, and what is computed
// from them and from integer constants. Dimensions are followed one by one, so that x.shape[1] folds where
// only the batch size is open; a value that is not a number but equals another one (Where with a known
// condition) is replaced by that.
#include <algorithm>
#include <string>
#include <unordered_map>

#include "src/passes/int_tensor.h"
#include "src/passes/pass.h"
#include "src/passes/substitute.h"

namespace rekindle::passes {
namespace {

using graph::Node;
using graph::Value;

class ShapeFolder {
 public:
  explicit ShapeFolder(graph::Graph& graph) : graph_(graph) {}

  bool run() {
    bool changed = false;
    for (auto position = graph_.nodes().begin(); position != graph_.nodes().end();) {
      Node* node = (position++)->get();
      if (node->outputs().size() == 1) changed |= visit(node);
    }
    return changed;
  }

 private:
  bool visit(Node* node) {
    Value* output = node->output();
    if (const graph::ConstantPtr constant = constant_of(output)) {
      if (auto tensor = int_tensor_of(*constant)) known_.emplace(output, *std::move(tensor));
      return false;
    }
    std::optional<IntTensor> tensor = evaluate(*node);
    if (!tensor) return false;
    if (tensor->numbers()) {
      const std::string name = output->name();
      Value* constant = graph_.create_constant(tensor->to_constant(), node);
      replace(node, constant, *std::move(tensor));
      graph_.claim_name(constant, name);  // a reader finds the same values, folded
      return true;
    }
    if (node->is("Where")) {
      for (std::size_t i : {1, 2}) {
        if (is_same(*tensor, node->input(i))) return replace(node, node->input(i), *std::move(tensor));
      }
    }
    known_.emplace(output, *std::move(tensor));
    return false;
  }

  bool replace(Node* node, Value* by, IntTensor tensor) {
    known_.insert_or_assign(by, std::move(tensor));
    const bool used = substitute(graph_, node->output(), by);
    if (graph_.is_output(node->output())) return used;
    graph_.erase_node(node);
    return true;
  }

  bool is_same(const IntTensor& tensor, const Value* value) const {
    const auto other = known_.find(value);
    if (other == known_.end() || other->second.sizes != tensor.sizes) return false;
    for (std::size_t i = 0; i < tensor.elements.size(); ++i) {
      if (!tensor.elements[i].equals(other->second.elements[i])) return false;
    }
    return true;
  }

  std::optional<IntTensor> evaluate(const Node& node) const {
    if (node.is("Shape")) return shape_of(node);
    if (node.is("Size")) return size_of(node);
    std::vector<const IntTensor*> inputs;
    for (const Value* input : node.inputs()) {
      const auto position = known_.find(input);
      inputs.push_back(position == known_.end() ? nullptr : &position->second);
    }
    return evaluate_ints(node, inputs);
  }

  std::optional<std::vector<graph::Dim>> dims_of(const Value* value) const {
    if (value->type().dims) return value->type().dims;
    const auto position = known_.find(value);
    if (position == known_.end()) return std::nullopt;
    std::vector<graph::Dim> dims;
    for (std::int64_t size : position->second.sizes) dims.push_back(graph::Dim::of(size));
    return dims;
  }

  std::optional<IntTensor> shape_of(const Node& node) const {
    const auto dims = dims_of(node.input(0));
    if (!dims) return std::nullopt;
    const auto rank = static_cast<std::int64_t>(dims->size());
    const auto absolute = [rank](std::int64_t at) {
      return std::clamp<std::int64_t>(at < 0 ? at + rank : at, 0, rank);
    };
    const std::int64_t end = absolute(node.int_attribute("end", rank));
    IntTensor shape;
    for (std::int64_t i = absolute(node.int_attribute("start", 0)); i < end; ++i) {
      shape.elements.push_back(IntElement::of((*dims)[static_cast<std::size_t>(i)]));
    }
    shape.sizes = {static_cast<std::int64_t>(shape.elements.size())};
    return shape;
  }

  std::optional<IntTensor> size_of(const Node& node) const {
    const auto dims = dims_of(node.input(0));
    if (!dims) return std::nullopt;
    std::int64_t numel = 1;
    for (const graph::Dim& dim : *dims) {
      if (!dim.is_static() || __builtin_mul_overflow(numel, dim.size, &numel)) return std::nullopt;
    }
    return IntTensor{graph::DType::kInt64, {}, {IntElement::of(numel)}};
  }

  graph::Graph& graph_;
  std::unordered_map<const Value*, IntTensor> known_;
};

Result<bool> run(graph::Graph& graph, const PassContext&) { return ShapeFolder(graph).run(); }

REKINDLE_PASS("fold_shapes", "Replaces shape arithmetic by its result where the dimensions are known", run);

}  // namespace
}  // namespace rekindle::passes
