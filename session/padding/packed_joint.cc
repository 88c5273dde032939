#include "session/padding/packed_joint.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "session/lower/evaluate.h"
#include "session/lower/infer_types.h"
#include "src/graph/dead_nodes.h"
#include "src/padding/simplify.h"
#include "src/pipeline/pipeline.h"

namespace rekindle::session {
namespace {

using Symbols = std::map<std::string, std::int64_t>;

// The part of a joint graph that a forward without gradients runs; its inputs are those of the forward.
std::unique_ptr<graph::Graph> forward_of(const autodiff::JointGraph& joint) {
  auto forward = joint.graph->clone();
  while (forward->outputs().size() > joint.forward_outputs)
    forward->erase_output(forward->outputs().size() - 1);
  padding::join_reshapes(*forward);
  graph::erase_dead_nodes(*forward);
  while (forward->inputs().size() > joint.forward_inputs) forward->erase_input(forward->inputs().size() - 1);
  return forward;
}

// `inputs`: tensors for the first inputs of the graph.
Symbols symbols_of(const graph::Graph& graph, std::span<const at::Tensor> inputs) {
  Symbols symbols;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto& dims = graph.inputs()[i]->type().dims;
    for (std::size_t axis = 0; dims && axis < dims->size(); ++axis) {
      if (!(*dims)[axis].symbol.empty())
        symbols[(*dims)[axis].symbol] = inputs[i].size(static_cast<std::int64_t>(axis));
    }
  }
  return symbols;
}

// Names of the first two dimensions of inputs that may be tokens, with such an input.
std::map<std::pair<std::string, std::string>, std::size_t> candidates(const graph::Graph& graph) {
  std::map<std::pair<std::string, std::string>, std::size_t> found;
  for (std::size_t i = 0; i < graph.inputs().size(); ++i) {
    const auto& dims = graph.inputs()[i]->type().dims;
    if (!dims || dims->size() < 2) continue;
    const std::string &batch = (*dims)[0].symbol, &length = (*dims)[1].symbol;
    if (!batch.empty() && !length.empty() && batch != length) found.try_emplace({batch, length}, i);
  }
  return found;
}

// No size depends on another one in the same way in all trials. None is larger than that of the call by much:
// tables of positions have an end.
padding::TokenSizes trials(const graph::Graph& forward, const Symbols& sizes, const std::string& batch,
                           const std::string& length) {
  std::vector<padding::Trial> made;
  for (std::int64_t trial = 0; trial < 3; ++trial) {
    Symbols tried = sizes;
    std::int64_t step = 2 * trial;
    for (auto& [name, size] : tried) {
      if (name == length) {
        size -= trial;
      } else if (name == batch) {
        size += trial;
      } else {
        size += size > step ? -step : step;
        step += trial;
      }
    }
    made.push_back({tried.at(batch), tried.at(length), value_sizes(forward, tried)});
  }
  return padding::TokenSizes(std::move(made));
}

// Shorter sequences cannot be told from other sizes.
constexpr std::int64_t kLeastLength = 4;

using Names = std::pair<std::string, std::string>;

// Of the candidates that are not `done`; which one it is goes into `done`.
Result<padding::PackedGraph> best_packed(const graph::Graph& forward, const Symbols& sizes,
                                         std::size_t written_results, std::set<Names>& done) {
  Result<padding::PackedGraph> best =
      unsupported("the graph has no input of tokens whose batch and length are open (dynamic=\"static\"?)");
  Names best_names;
  for (const auto& [names, input] : candidates(forward)) {
    if (done.contains(names) || sizes.at(names.second) < kLeastLength) continue;
    const auto graph = forward.clone();
    const padding::TokenSizes tried = trials(*graph, sizes, names.first, names.second);
    padding::ask_tokens_for_sizes(*graph, input, tried);
    auto packed =
        padding::pack_rows(*graph, input, trials(*graph, sizes, names.first, names.second), written_results);
    const bool is_better = packed.ok() && (!best.ok() || packed->products > best->products);
    if (is_better) best_names = names;
    if (is_better || !best.ok()) best = std::move(packed);
  }
  if (best.ok()) done.insert(best_names);
  return best;
}

}  // namespace

bool tells_rows(const autodiff::JointGraph& joint, std::span<const at::Tensor> inputs) {
  const Symbols sizes = symbols_of(*joint.graph, inputs);
  const auto found = candidates(*joint.graph);
  return found.empty() || std::ranges::any_of(found, [&](const auto& candidate) {
           return sizes.at(candidate.first.second) >= kLeastLength;
         });
}

Result<PackedJoint> packed_joint(const autodiff::JointGraph& joint, std::size_t written_results,
                                 std::span<const at::Tensor> inputs) {
  auto graph = forward_of(joint);
  Symbols sizes = symbols_of(*graph, inputs);
  PackedJoint made;
  std::set<Names> done;
  for (;;) {
    auto packed = best_packed(*graph, sizes, written_results, done);
    if (!packed.ok() && made.packings.empty()) return packed.error();
    if (!packed.ok()) break;
    graph = std::move(packed->graph);
    for (const std::string& symbol : packed->symbols) sizes[symbol] = kLeastLength;
    made.packings.push_back(*std::move(packed));
  }
  std::vector<bool> needs_gradient(graph->inputs().size(), false);
  for (const std::size_t input : joint.gradient_of) needs_gradient[input] = true;
  REKINDLE_ASSIGN_OR_RETURN(
      made.joint,
      pipeline::differentiate_and_simplify(
          *graph, needs_gradient, [](const graph::Node& node) { return evaluate(node); },
          [&](graph::Graph& each) { infer_types(each, sizes); },
          {inputs.empty() || inputs[0].is_cpu() ? pipeline::Target::kCpu : pipeline::Target::kAccelerator}));
  if (made.joint.cotangent_of != joint.cotangent_of || made.joint.gradient_of != joint.gradient_of)
    return unsupported("results would depend on other inputs");
  return made;
}

}  // namespace rekindle::session
