#include "src/graph/verify.h"

#include <algorithm>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "src/graph/attribute_schema.h"
#include "src/graph/control_flow.h"
#include "src/graph/op_info.h"
#include "src/graph/text/print.h"
#include "src/graph/torch_node.h"

namespace rekindle::graph {
namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph) {}

  Status run() {
    for (std::size_t i = 0; i < graph_.inputs().size(); ++i) {
      REKINDLE_RETURN_IF_ERROR(define(graph_.inputs()[i], nullptr, i, "input " + std::to_string(i)));
    }
    for (const auto& node : graph_.nodes()) {
      if (Status status = check_node(*node); !status.ok()) return status;
    }
    for (std::size_t i = 0; i < graph_.outputs().size(); ++i) {
      if (!defined_.contains(graph_.outputs()[i]))
        return wrong("output " + std::to_string(i) + " is not defined");
    }
    return check_uses();
  }

 private:
  using UseSet = std::set<std::pair<const Node*, std::size_t>>;

  Error wrong(const std::string& message) const {
    return internal_error("graph '" + graph_.name() + "': " + message);
  }

  Status define(const Value* value, const Node* producer, std::size_t index, const std::string& where) {
    if (value == nullptr) return wrong(where + " is null");
    if (value->producer() != producer || value->index() != index) {
      return wrong("%" + value->name() + " has the wrong producer or index for " + where);
    }
    if (!defined_.insert(value).second) return wrong("%" + value->name() + " is defined twice");
    if (!names_.insert(value->name()).second) return wrong("two values have the name %" + value->name());
    if (graph_.find_value(value->name()) != value)
      return wrong("%" + value->name() + " is not found by its name");
    if (const auto& dims = value->type().dims) {
      const auto bad = [](const Dim& dim) { return dim.size < -1 || (dim.size >= 0 && !dim.symbol.empty()); };
      if (std::ranges::any_of(*dims, bad))
        return wrong("%" + value->name() + " has a dimension that is no dimension");
    }
    return {};
  }

  Status check_node(const Node& node) {
    REKINDLE_RETURN_IF_ERROR(check_signature(node));
    REKINDLE_RETURN_IF_ERROR(check_attributes(node));
    for (std::size_t i = 0; i < node.inputs().size(); ++i) {
      const Value* input = node.inputs()[i];
      if (input == nullptr) continue;
      if (!defined_.contains(input)) {
        return wrong(describe(node) + ": input " + std::to_string(i) + " is not defined before it is used");
      }
      uses_[input].emplace(&node, i);
    }
    for (std::size_t i = 0; i < node.outputs().size(); ++i) {
      REKINDLE_RETURN_IF_ERROR(
          define(node.outputs()[i], &node, i, "output " + std::to_string(i) + " of " + describe(node)));
    }
    return {};
  }

  Status check_signature(const Node& node) const {
    const OpInfo* info = find_op(node.domain(), node.op_type());
    if (info == nullptr) return wrong(describe(node) + ": the op is not known");
    if (!graph_.opsets().contains(node.domain())) {
      return wrong(describe(node) + ": the graph has no opset for domain '" + node.domain() + "'");
    }
    const std::size_t inputs = node.inputs().size(), outputs = node.outputs().size();
    if (inputs < info->min_inputs || inputs > info->max_inputs)
      return wrong(count_message(node, inputs, "inputs"));
    if (outputs < info->min_outputs || outputs > info->max_outputs)
      return wrong(count_message(node, outputs, "outputs"));
    const std::size_t required = info->max_inputs == kVariadic ? inputs : info->min_inputs;
    for (std::size_t i = 0; i < required && !info->is(kAbsentInputs); ++i) {
      if (node.input(i) == nullptr)
        return wrong(describe(node) + ": input " + std::to_string(i) + " is absent but required");
    }
    if (!node.inputs().empty() && node.inputs().back() == nullptr)
      return wrong(describe(node) + ": its last input is absent");
    return {};
  }

  static std::string count_message(const Node& node, std::size_t count, const char* what) {
    return describe(node) + ": " + std::to_string(count) + " " + what + " are not allowed";
  }

  Status check_attributes(const Node& node) const {
    for (const auto& [name, attribute] : node.attributes()) {
      const auto expected = expected_kind(node, name);
      if (expected && *expected != kind_of(attribute)) {
        return wrong(describe(node) + ": attribute '" + name + "' is " +
                     attribute_kind_name(kind_of(attribute)) + ", must be " + attribute_kind_name(*expected));
      }
      const auto* constant = std::get_if<ConstantPtr>(&attribute);
      if (constant != nullptr && !is_well_formed(*constant)) {
        return wrong(describe(node) + ": the bytes of constant '" + name + "' do not fit its sizes");
      }
    }
    REKINDLE_RETURN_IF_ERROR(check_bodies(node));
    if (const std::string problem = wrong_torch_attributes(node); !problem.empty())
      return wrong(describe(node) + ": " + problem);
    if (!node.is("Constant")) return {};
    if (node.attributes().size() != 1 || node.attribute("value") == nullptr) {
      return wrong(describe(node) + ": a Constant has one attribute, 'value'");
    }
    const TensorType& type = node.output()->type();
    if (type != TensorType{} && type != type_of(*constant_of(node.output()))) {
      return wrong(describe(node) + ": the type of a Constant's output is not the constant's");
    }
    return {};
  }

  Status check_bodies(const Node& node) const {
    for (const auto& [name, attribute] : node.attributes()) {
      const auto* body = std::get_if<GraphPtr>(&attribute);
      if (body == nullptr) continue;
      if (*body == nullptr) return wrong(describe(node) + ": attribute '" + name + "' is no graph");
      if ((*body)->opsets() != graph_.opsets())
        return wrong(describe(node) + ": '" + name + "' has other opsets than its graph");
      REKINDLE_RETURN_IF_ERROR(verify(**body));
    }
    const std::string problem = wrong_control_flow(node);
    return problem.empty() ? Status() : wrong(describe(node) + ": " + problem);
  }

  static bool is_well_formed(const ConstantPtr& constant) {
    if (constant == nullptr) return false;
    const auto size = byte_size(constant->dtype, constant->sizes);
    return size && static_cast<std::size_t>(*size) == constant->bytes.size();
  }

  Status check_uses() const {
    static const UseSet kNone;
    for (const Value* value : defined_) {
      const auto position = uses_.find(value);
      const UseSet& expected = position == uses_.end() ? kNone : position->second;
      UseSet listed;
      for (const Use& use : value->uses()) listed.emplace(use.node, use.index);
      if (listed != expected || listed.size() != value->uses().size()) {
        return wrong("the list of uses of %" + value->name() + " is wrong");
      }
    }
    return {};
  }

  const Graph& graph_;
  std::unordered_set<const Value*> defined_;
  std::unordered_set<std::string> names_;
  std::unordered_map<const Value*, UseSet> uses_;
};

}  // namespace

Status verify(const Graph& graph) { return Verifier(graph).run(); }

}  // namespace rekindle::graph
