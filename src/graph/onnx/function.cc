#include "src/graph/onnx/function.h"

#include <map>
#include <string>
#include <tuple>
#include <unordered_map>

namespace rekindle::graph {
namespace {

constexpr int kMaxDepth = 32;
constexpr std::size_t kMaxNodes = 1 << 20, kMaxBytes = 1 << 30;

using Nodes = google::protobuf::RepeatedPtrField<onnx::NodeProto>;
using Names = std::unordered_map<std::string, std::string>;

class Inliner {
 public:
  Status run(onnx::ModelProto& model) {
    for (const onnx::OperatorSetIdProto& opset : model.opset_import())
      opsets_[own_domain(opset.domain())] = opset.version();
    for (const onnx::FunctionProto& function : model.functions()) {
      const auto key = std::tuple(own_domain(function.domain()), function.name(), function.overload());
      if (!functions_.emplace(key, &function).second)
        return corruption("ONNX model: it defines function '" + function.name() + "' twice");
    }
    REKINDLE_RETURN_IF_ERROR(expand(*model.mutable_graph()->mutable_node(), 0));
    functions_.clear();
    model.clear_functions();
    // Functions may use domains that the graph did not.
    for (const auto& [domain, version] : needed_) {
      if (opsets_.contains(domain)) continue;
      onnx::OperatorSetIdProto& opset = *model.add_opset_import();
      opset.set_domain(domain);
      opset.set_version(version);
    }
    return {};
  }

 private:
  const onnx::FunctionProto* find(const onnx::NodeProto& node) const {
    const auto found =
        functions_.find(std::tuple(own_domain(node.domain()), node.op_type(), node.overload()));
    return found == functions_.end() ? nullptr : found->second;
  }

  Status expand(Nodes& nodes, int depth) {
    Nodes expanded;
    for (onnx::NodeProto& node : nodes) {
      for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
        if (attribute.has_g())
          REKINDLE_RETURN_IF_ERROR(expand(*attribute.mutable_g()->mutable_node(), depth));
      }
      const onnx::FunctionProto* function = find(node);
      if (++count_ > kMaxNodes)
        return unsupported("ONNX model: its functions stand for more than a million nodes");
      if (function == nullptr) {
        *expanded.Add() = std::move(node);
        continue;
      }
      if (depth == kMaxDepth)
        return unsupported("ONNX model: function '" + function->name() +
                           "' calls itself, or functions are nested too deeply");
      Nodes body;
      REKINDLE_RETURN_IF_ERROR(instantiate(*function, node, body));
      REKINDLE_RETURN_IF_ERROR(expand(body, depth + 1));
      for (onnx::NodeProto& inner : body) *expanded.Add() = std::move(inner);
    }
    nodes.Swap(&expanded);
    return {};
  }

  Status check_opsets(const onnx::FunctionProto& function) {
    for (const onnx::OperatorSetIdProto& opset : function.opset_import()) {
      const auto [known, added] = needed_.emplace(own_domain(opset.domain()), opset.version());
      const auto of_model = opsets_.find(known->first);
      if (known->second != opset.version() ||
          (of_model != opsets_.end() && of_model->second != opset.version())) {
        return unsupported("ONNX model: function '" + function.name() + "' is written for version " +
                           std::to_string(opset.version()) + " of domain '" + known->first +
                           "', the model for another");
      }
    }
    return {};
  }

  // The function's nodes with the call's values, attributes and names of their own.
  Status instantiate(const onnx::FunctionProto& function, const onnx::NodeProto& call, Nodes& body) {
    REKINDLE_RETURN_IF_ERROR(check_opsets(function));
    if (call.input_size() > function.input_size() || call.output_size() > function.output_size())
      return corruption("ONNX model: a call of function '" + function.name() +
                        "' has too many inputs or outputs");
    Names names;
    prefix_ = "inlined." + std::to_string(++calls_) + ".";
    for (int i = 0; i < function.input_size(); ++i)
      names[function.input(i)] = i < call.input_size() ? call.input(i) : "";
    // An output that is also an input is handed through; the others are made inside under the caller's name.
    for (int i = 0; i < function.output_size(); ++i) {
      const bool wanted = i < call.output_size() && !call.output(i).empty();
      if (!names.contains(function.output(i))) {
        names[function.output(i)] = wanted ? call.output(i) : prefix_ + function.output(i);
      } else if (wanted) {
        onnx::NodeProto& copy = *body.Add();
        copy.set_op_type("Identity");
        copy.add_input(names.at(function.output(i)));
        copy.add_output(call.output(i));
      }
    }
    for (const onnx::NodeProto& node : function.node()) {
      bytes_ += node.ByteSizeLong();
      if (bytes_ > kMaxBytes) return unsupported("ONNX model: its functions stand for more than a gigabyte");
      onnx::NodeProto& made = *body.Add();
      made = node;
      rename(made, names);
      bind_attributes(made, function, call);
    }
    return {};
  }

  std::string renamed(const std::string& name, Names& names) const {
    if (name.empty()) return name;
    return names.try_emplace(name, prefix_ + name).first->second;
  }

  void rename(onnx::NodeProto& node, Names& names) const {
    for (std::string& name : *node.mutable_input()) name = renamed(name, names);
    for (std::string& name : *node.mutable_output()) name = renamed(name, names);
    for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) rename(*attribute.mutable_g(), names);
    }
  }

  void rename(onnx::GraphProto& graph, Names& names) const {
    for (auto* infos : {graph.mutable_input(), graph.mutable_output(), graph.mutable_value_info()}) {
      for (onnx::ValueInfoProto& info : *infos) info.set_name(renamed(info.name(), names));
    }
    for (onnx::TensorProto& tensor : *graph.mutable_initializer())
      tensor.set_name(renamed(tensor.name(), names));
    for (onnx::NodeProto& node : *graph.mutable_node()) rename(node, names);
  }

  // Attributes that refer to the function's get the call's value, or the function's default, or go.
  static void bind_attributes(onnx::NodeProto& node, const onnx::FunctionProto& function,
                              const onnx::NodeProto& call) {
    google::protobuf::RepeatedPtrField<onnx::AttributeProto> bound;
    for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) {
        for (onnx::NodeProto& inner : *attribute.mutable_g()->mutable_node())
          bind_attributes(inner, function, call);
      }
      if (attribute.ref_attr_name().empty()) {
        *bound.Add() = attribute;
        continue;
      }
      const onnx::AttributeProto* value = nullptr;
      for (const onnx::AttributeProto& fallback : function.attribute_proto()) {
        if (fallback.name() == attribute.ref_attr_name()) value = &fallback;
      }
      for (const onnx::AttributeProto& given : call.attribute()) {
        if (given.name() == attribute.ref_attr_name()) value = &given;
      }
      if (value == nullptr) continue;
      onnx::AttributeProto& made = *bound.Add();
      made = *value;
      made.set_name(attribute.name());
    }
    node.mutable_attribute()->Swap(&bound);
  }

  std::map<std::tuple<std::string, std::string, std::string>, const onnx::FunctionProto*> functions_;
  std::map<std::string, std::int64_t> opsets_, needed_;
  std::string prefix_;  // of names inside the call that is being expanded
  std::size_t count_ = 0, calls_ = 0, bytes_ = 0;
};

}  // namespace

Status inline_functions(onnx::ModelProto& model) {
  return model.functions_size() == 0 ? Status() : Inliner().run(model);
}

}  // namespace rekindle::graph
