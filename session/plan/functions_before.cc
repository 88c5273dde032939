#include "session/plan/functions_before.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "src/graph/torch_node.h"

namespace rekindle::session {
namespace {

// PyTorch's own operators return nothing for nothing.
bool gets_zeros(const graph::Node& node) {
  return graph::has_tape(node) && !std::string_view(node.op_type()).starts_with("aten.");
}

std::vector<const graph::Node*> functions_before(const graph::Value* result) {
  std::vector<const graph::Node*> functions, open;
  std::unordered_set<const graph::Node*> seen;
  const auto add = [&](const graph::Value* value) {
    if (value == nullptr || value->producer() == nullptr || !seen.insert(value->producer()).second) return;
    open.push_back(value->producer());
  };
  add(result);
  while (!open.empty()) {
    const graph::Node* node = open.back();
    open.pop_back();
    if (gets_zeros(*node)) functions.push_back(node);
    for (const graph::Value* input : node->inputs()) add(input);
  }
  return functions;
}

}  // namespace

bool FunctionsBefore::any_left_out(const std::vector<bool>& present,
                                   const std::vector<std::size_t>& results) const {
  if (results.empty()) return false;
  std::unordered_set<const graph::Node*> run;
  for (std::size_t i = 0; i < present.size(); ++i) {
    if (present[i]) run.insert(before()[i].begin(), before()[i].end());
  }
  return std::ranges::any_of(results, [&](std::size_t result) {
    return std::ranges::any_of(before().at(result),
                               [&](const graph::Node* each) { return !run.contains(each); });
  });
}

const std::vector<FunctionsBefore::Functions>& FunctionsBefore::before() const {
  std::call_once(searched_, [this] {
    for (const std::size_t output : joint_.cotangent_of)
      before_.push_back(functions_before(joint_.graph->outputs()[output]));
  });
  return before_;
}

}  // namespace rekindle::session
