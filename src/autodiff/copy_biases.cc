#include "src/autodiff/copy_biases.h"

#include <functional>
#include <numeric>
#include <string>
#include <unordered_set>
#include <vector>

#include "src/autodiff/partition.h"
#include "src/graph/op_info.h"

namespace rekindle::autodiff {
namespace {

using graph::Node;
using graph::Value;

constexpr std::size_t kMostBytes = 64 << 10;
constexpr std::size_t kBias = 2;  // its place among the inputs

bool is_small(const graph::TensorType& type) {
  const auto sizes = type.static_sizes();
  if (!sizes) return false;
  const auto elements = std::accumulate(sizes->begin(), sizes->end(), std::int64_t{1}, std::multiplies<>());
  return static_cast<std::size_t>(elements) * graph::dtype_size(type.dtype) <= kMostBytes;
}

}  // namespace

void copy_biases(JointGraph& joint) {
  const Partition parts = partition(joint);
  std::unordered_set<const Value*> saved(parts.saved.begin(), parts.saved.end());
  for (const Value* value : parts.saved) saved.insert(graph::base_of(value));
  const auto wants_copy = [&](const Node& node) {
    const Value* bias = node.input(kBias);
    return node.is("LayerNormalization") && saved.contains(node.output()) && bias != nullptr &&
           bias->producer() == nullptr && !saved.contains(bias) && is_small(bias->type());
  };
  std::vector<Node*> normalizations;
  for (const auto& node : joint.graph->nodes()) {
    if (wants_copy(*node)) normalizations.push_back(node.get());
  }
  for (Node* node : normalizations) {
    Node* copy = joint.graph->create_node({.op_type = "Copy",
                                           .domain = std::string(graph::kRekindleDomain),
                                           .inputs = {node->input(kBias)},
                                           .attributes = {}},
                                          node);
    copy->output()->set_type(node->input(kBias)->type());
    copy->set_origin(*node);
    node->set_input(kBias, copy->output());
  }
}

}  // namespace rekindle::autodiff
