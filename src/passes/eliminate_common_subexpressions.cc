// Merges nodes that compute the same: one op on the same inputs with the same attributes, compared
// by content and bit by bit, so that constants that differ in dtype, or 0.0 and -0.0, stay apart.
// Random nodes are never merged, and floating-point casts not before there are gradients.
#include <algorithm>
#include <functional>
#include <unordered_set>

#include "src/base/digest.h"
#include "src/graph/op_info.h"
#include "src/passes/pass.h"
#include "src/passes/substitute.h"

namespace rekindle::passes {
namespace {

using graph::Attribute;
using graph::Node;

template <typename T>
void mix(std::size_t& seed, const T& value) {
  seed ^= std::hash<T>{}(value) + 0x9e3779b97f4a7c15u + (seed << 6) + (seed >> 2);
}

// Only what is cheap and tells most attributes apart; the comparison is exact.
std::size_t hash_of(const Attribute& attribute) {
  std::size_t seed = attribute.index();
  if (const auto* v = std::get_if<std::int64_t>(&attribute)) mix(seed, *v);
  if (const auto* v = std::get_if<std::string>(&attribute)) mix(seed, *v);
  if (const auto* v = std::get_if<std::vector<std::int64_t>>(&attribute)) {
    for (std::int64_t item : *v) mix(seed, item);
  }
  if (const auto* v = std::get_if<graph::ConstantPtr>(&attribute)) mix(seed, checksum_of((*v)->bytes));
  return seed;
}

struct Hash {
  std::size_t operator()(const Node* node) const {
    std::size_t seed = std::hash<std::string>{}(node->op_type());
    for (const graph::Value* input : node->inputs()) mix(seed, input);
    for (const auto& [name, attribute] : node->attributes()) {
      mix(seed, name);
      mix(seed, hash_of(attribute));
    }
    return seed;
  }
};

struct Same {
  bool operator()(const Node* a, const Node* b) const {
    const auto same = [](const auto& x, const auto& y) {
      return x.first == y.first && graph::same_attribute(x.second, y.second);
    };
    return a->op_type() == b->op_type() && a->domain() == b->domain() && a->inputs() == b->inputs() &&
           a->outputs().size() == b->outputs().size() &&
           std::ranges::equal(a->attributes(), b->attributes(), same);
  }
};

bool is_floating_cast(const Node& node) {
  if (node.op_type() != "Cast") return false;
  const graph::DType dtype = node.output()->type().dtype;
  return dtype == graph::DType::kUndefined || graph::is_differentiable(dtype);
}

Result<bool> run(graph::Graph& graph, const PassContext& context) {
  std::unordered_set<Node*, Hash, Same> kept;
  bool changed = false;
  for (auto position = graph.nodes().begin(); position != graph.nodes().end();) {
    Node* node = (position++)->get();
    if (graph::is_random(*node) || (context.keeps_casts_apart && is_floating_cast(*node))) continue;
    const auto [first, inserted] = kept.insert(node);
    if (inserted) continue;
    for (std::size_t i = 0; i < node->outputs().size(); ++i) {
      changed |= substitute(graph, node->output(i), (*first)->output(i));
    }
    const auto stays = [&](const graph::Value* value) { return graph.is_output(value); };
    if (std::ranges::any_of(node->outputs(), stays)) continue;  // two outputs with names of their own
    graph.erase_node(node);
    changed = true;
  }
  return changed;
}

REKINDLE_PASS("eliminate_common_subexpressions", "Computes the same thing once", run);

}  // namespace
}  // namespace rekindle::passes
