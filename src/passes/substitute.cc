#include "src/passes/substitute.h"

#include <string>

namespace rekindle::passes {
namespace {

using graph::TensorType;
using graph::Value;

// Fills what `type` does not know from `more`, a type of the same value.
TensorType refined(TensorType type, const TensorType& more) {
  if (type.dtype == graph::DType::kUndefined) type.dtype = more.dtype;
  if (!type.dims) {
    type.dims = more.dims;
  } else if (more.dims && more.dims->size() == type.dims->size()) {
    for (std::size_t i = 0; i < type.dims->size(); ++i) {
      graph::Dim& dim = (*type.dims)[i];
      const graph::Dim& other = (*more.dims)[i];
      if (!dim.is_static() && (other.is_static() || dim.symbol.empty())) dim = other;
    }
  }
  return type;
}

}  // namespace

bool substitute(graph::Graph& graph, Value* from, Value* to) {
  const bool is_input = to->producer() == nullptr;
  // The type of a graph input is part of the interface.
  if (!is_input) to->set_type(refined(to->type(), from->type()));
  if (graph.is_output(from) && !is_input && !graph.is_output(to)) {
    const std::string name = from->name();
    graph.replace_all_uses(from, to);
    graph.claim_name(to, name);
    return true;
  }
  const bool changed = !from->uses().empty();
  const std::vector<graph::Use> uses = from->uses();  // set_input changes the original
  for (const graph::Use& use : uses) use.node->set_input(use.index, to);
  return changed;
}

}  // namespace rekindle::passes
