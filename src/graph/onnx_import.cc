#include "src/graph/onnx_import.h"

#include <limits>
#include <unordered_set>
#include <utility>

#include "src/graph/attribute_schema.h"
#include "src/graph/element.h"
#include "src/graph/onnx_attribute.h"
#include "src/graph/onnx_tensor.h"
#include "src/graph/op_info.h"
#include "src/graph/verify.h"

namespace rekindle::graph {
namespace {

using Attributes = std::map<std::string, Attribute, std::less<>>;

std::string own_domain(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

// "node 12 '/layer/MatMul' (op MatMul)".
std::string node_text(const onnx::NodeProto& node, int position) {
  std::string text = "node " + std::to_string(position);
  if (!node.name().empty()) text += " '" + node.name() + "'";
  const std::string domain = own_domain(node.domain());
  return text + " (op " + (domain.empty() ? "" : domain + "::") + node.op_type() + ")";
}

// Where the exporter says the node came from.
std::string source_of(const onnx::NodeProto& node) {
  if (!node.doc_string().empty()) return node.doc_string();
  for (const auto& entry : node.metadata_props()) {
    if (entry.key() == "pkg.torch.onnx.stack_trace") return entry.value();
  }
  return node.name();
}

// The literal that an attribute of a Constant node stands for; nullopt for an attribute that is none.
std::optional<ConstantPtr> literal_of(const std::string& name, const Attribute& attribute) {
  auto made = std::make_shared<ConstantTensor>();
  const auto fill = [&](DType dtype, const auto& items, bool scalar) {
    made->dtype = dtype;
    if (!scalar) made->sizes = {static_cast<std::int64_t>(items.size())};
    for (const auto item : items) {
      dtype == DType::kInt64 ? append_int64(dtype, static_cast<std::int64_t>(item), made->bytes)
                             : append_double(dtype, static_cast<double>(item), made->bytes);
    }
    return ConstantPtr(made);
  };
  const auto* number = std::get_if<std::int64_t>(&attribute);
  const auto* real = std::get_if<double>(&attribute);
  const auto* numbers = std::get_if<std::vector<std::int64_t>>(&attribute);
  const auto* reals = std::get_if<std::vector<double>>(&attribute);
  const auto* tensor = std::get_if<ConstantPtr>(&attribute);
  if (name == "value" && tensor != nullptr) return *tensor;
  if (name == "value_int" && number != nullptr) return fill(DType::kInt64, std::vector{*number}, true);
  if (name == "value_float" && real != nullptr) return fill(DType::kFloat32, std::vector{*real}, true);
  if (name == "value_ints" && numbers != nullptr) return fill(DType::kInt64, *numbers, false);
  if (name == "value_floats" && reals != nullptr) return fill(DType::kFloat32, *reals, false);
  return std::nullopt;
}

class Importer {
 public:
  Result<std::unique_ptr<Graph>> run(const onnx::ModelProto& model) {
    if (!model.has_graph()) return corruption("ONNX model: it has no graph");
    if (model.functions_size() > 0) {
      return unsupported("ONNX model: it defines function '" + model.functions(0).name() +
                         "'; inline functions first");
    }
    if (model.training_info_size() > 0)
      return unsupported("ONNX model: training information is not supported");
    const onnx::GraphProto& proto = model.graph();
    graph_ = std::make_unique<Graph>(proto.name());
    REKINDLE_RETURN_IF_ERROR(import_opsets(model));
    REKINDLE_RETURN_IF_ERROR(import_inputs(proto));
    REKINDLE_RETURN_IF_ERROR(import_initializers(proto));
    for (int i = 0; i < proto.node_size(); ++i) {
      if (Status status = import_node(proto.node(i), i); !status.ok()) return status.error();
    }
    REKINDLE_RETURN_IF_ERROR(import_outputs(proto));
    if (Status status = verify(*graph_); !status.ok())
      return corruption("ONNX model: " + status.error().message);
    return std::move(graph_);
  }

 private:
  Status import_opsets(const onnx::ModelProto& model) {
    for (const onnx::OperatorSetIdProto& opset : model.opset_import()) {
      const std::string domain = own_domain(opset.domain());
      // Another domain matters only when a node uses it, and is refused there.
      if (!domain.empty() && domain != kRekindleDomain && domain != kTorchDomain) continue;
      if (domain.empty() && (opset.version() < kMinOnnxOpset || opset.version() > kMaxOnnxOpset)) {
        return unsupported("ONNX model: opset " + std::to_string(opset.version()) + " is not among " +
                           std::to_string(kMinOnnxOpset) + " to " + std::to_string(kMaxOnnxOpset) +
                           "; export it with opset 20");
      }
      const std::int64_t own = domain == kTorchDomain ? kTorchOpset : kRekindleOpset;
      if (!domain.empty() && opset.version() != own) {
        return unsupported("ONNX model: version " + std::to_string(opset.version()) + " of domain " + domain +
                           " is not " + std::to_string(own) + "; export it again with this release");
      }
      graph_->set_opset(domain, opset.version());
    }
    return {};
  }

  // Names `value`, which the model defines.
  Status define(Value* value, const std::string& name, const std::string& what) {
    if (!defined_.insert(name).second)
      return corruption("ONNX model: " + what + " defines '" + name + "' a second time");
    graph_->claim_name(value, name);
    return {};
  }

  Status import_inputs(const onnx::GraphProto& proto) {
    std::unordered_set<std::string> with_default;
    for (const onnx::TensorProto& tensor : proto.initializer()) with_default.insert(tensor.name());
    for (const onnx::ValueInfoProto& info : proto.input()) {
      if (info.name().empty()) return corruption("ONNX model: an input has no name");
      if (with_default.contains(info.name())) continue;
      REKINDLE_ASSIGN_OR_RETURN(TensorType type, type_from_onnx(info));
      REKINDLE_RETURN_IF_ERROR(define(graph_->add_input("", std::move(type)), info.name(), "input"));
    }
    return {};
  }

  Status import_initializers(const onnx::GraphProto& proto) {
    if (proto.sparse_initializer_size() > 0)
      return unsupported("ONNX model: sparse initializers are not supported");
    for (const onnx::TensorProto& tensor : proto.initializer()) {
      if (tensor.name().empty()) return corruption("ONNX model: an initializer has no name");
      if (!graph_->opsets().contains(""))
        return corruption("ONNX model: it has initializers but no opset of ONNX");
      const std::string what = "initializer '" + tensor.name() + "'";
      REKINDLE_ASSIGN_OR_RETURN(ConstantPtr constant, constant_from_onnx(tensor, "ONNX model: " + what));
      REKINDLE_RETURN_IF_ERROR(define(graph_->create_constant(std::move(constant)), tensor.name(), what));
    }
    return {};
  }

  Status import_node(const onnx::NodeProto& proto, int position) {
    const std::string what = "ONNX model: " + node_text(proto, position);
    NodeSpec spec{.op_type = proto.op_type(), .domain = own_domain(proto.domain())};
    REKINDLE_RETURN_IF_ERROR(import_attributes(proto, what, spec.attributes));
    if (find_op(spec.domain, spec.op_type) == nullptr || !proto.overload().empty()) {
      return unsupported(what + ": Rekindle does not know this op");
    }
    if (!graph_->opsets().contains(spec.domain))
      return corruption(what + ": the model has no opset for its domain");
    if (spec.op_type == "Constant" && spec.domain.empty())
      REKINDLE_RETURN_IF_ERROR(normalize_constant(what, spec.attributes));
    for (const std::string& name : proto.input()) {
      if (!name.empty() && !defined_.contains(name)) {
        return corruption(what + ": input '" + name + "' is not defined above it");
      }
      spec.inputs.push_back(name.empty() ? nullptr : graph_->find_value(name));
    }
    int outputs = proto.output_size();
    while (outputs > 0 && proto.output(outputs - 1).empty()) --outputs;
    spec.outputs = static_cast<std::size_t>(outputs);
    Node* node = graph_->create_node(std::move(spec));
    node->set_source(source_of(proto));
    for (int i = 0; i < outputs; ++i) {
      Value* value = node->output(static_cast<std::size_t>(i));
      if (!proto.output(i).empty()) REKINDLE_RETURN_IF_ERROR(define(value, proto.output(i), what));
      if (const ConstantPtr constant = constant_of(value)) value->set_type(type_of(*constant));
    }
    return check_attribute_names(*node, what);
  }

  static Status import_attributes(const onnx::NodeProto& proto, const std::string& what,
                                  Attributes& attributes) {
    for (const onnx::AttributeProto& attribute : proto.attribute()) {
      const std::string name = what + ", attribute '" + attribute.name() + "'";
      REKINDLE_ASSIGN_OR_RETURN(Attribute value, attribute_from_onnx(attribute, name));
      if (!attributes.emplace(attribute.name(), std::move(value)).second)
        return corruption(name + " is given twice");
    }
    return restore_exact_floats(proto, what, attributes);
  }

  // ONNX has several attributes for literals; Rekindle has one.
  static Status normalize_constant(const std::string& what, Attributes& attributes) {
    if (attributes.size() != 1) return corruption(what + ": it must have exactly one attribute");
    const auto& [name, attribute] = *attributes.begin();
    std::optional<ConstantPtr> literal = literal_of(name, attribute);
    if (!literal) return unsupported(what + ": attribute '" + name + "' is not supported");
    attributes = {{"value", *std::move(literal)}};
    return {};
  }

  // An attribute of ONNX that nobody reads would change the meaning of its node unnoticed.
  static Status check_attribute_names(const Node& node, const std::string& what) {
    for (const auto& [name, attribute] : node.attributes()) {
      if (node.domain().empty() && !expected_kind(node, name)) {
        return unsupported(what + ": attribute '" + name + "' is not known");
      }
    }
    return {};
  }

  Status import_outputs(const onnx::GraphProto& proto) {
    for (const onnx::ValueInfoProto& info : proto.output()) {
      if (!defined_.contains(info.name()))
        return corruption("ONNX model: output '" + info.name() + "' is not defined");
      graph_->add_output(graph_->find_value(info.name()));
      REKINDLE_RETURN_IF_ERROR(annotate(info));
    }
    for (const onnx::ValueInfoProto& info : proto.value_info()) REKINDLE_RETURN_IF_ERROR(annotate(info));
    return {};
  }

  // Sets the type of a value that has none yet. Types of names that the graph does not define say nothing.
  Status annotate(const onnx::ValueInfoProto& info) {
    REKINDLE_ASSIGN_OR_RETURN(TensorType type, type_from_onnx(info));
    Value* value = defined_.contains(info.name()) ? graph_->find_value(info.name()) : nullptr;
    if (value != nullptr && value->type() == TensorType{}) value->set_type(std::move(type));
    return {};
  }

  static Result<TensorType> type_from_onnx(const onnx::ValueInfoProto& info) {
    TensorType type;
    const onnx::TypeProto& proto = info.type();
    const std::string what = "ONNX model: value '" + info.name() + "'";
    if (proto.value_case() == onnx::TypeProto::VALUE_NOT_SET) return type;
    if (!proto.has_tensor_type())
      return unsupported(what + " is a sequence, map, optional or sparse tensor, not a tensor");
    REKINDLE_ASSIGN_OR_RETURN(type.dtype, dtype_from_onnx(proto.tensor_type().elem_type(), what));
    if (!proto.tensor_type().has_shape()) return type;
    type.dims.emplace();
    for (const auto& dim : proto.tensor_type().shape().dim()) {
      if (dim.has_dim_value() && dim.dim_value() < 0) {
        return corruption(what + " has dimension " + std::to_string(dim.dim_value()));
      }
      type.dims->push_back(dim.has_dim_value() ? Dim::of(dim.dim_value()) : Dim::named(dim.dim_param()));
    }
    return type;
  }

  std::unique_ptr<Graph> graph_;
  std::unordered_set<std::string> defined_;  // by the model; the graph has fresh names besides
};

}  // namespace

Result<std::unique_ptr<Graph>> import_onnx(std::string_view bytes) {
  if (bytes.size() > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    return unsupported("ONNX model: it has " + std::to_string(bytes.size()) +
                       " bytes, more than protobuf's 2 GiB");
  }
  onnx::ModelProto model;
  if (!model.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return corruption("ONNX model: these " + std::to_string(bytes.size()) +
                      " bytes are not a serialized model");
  }
  return Importer().run(model);
}

}  // namespace rekindle::graph
