#include "src/graph/onnx/graph.h"

#include <utility>

#include "src/graph/attribute_schema.h"
#include "src/graph/element.h"
#include "src/graph/onnx/attribute.h"
#include "src/graph/onnx/function.h"
#include "src/graph/onnx/normalize.h"
#include "src/graph/onnx/origin.h"
#include "src/graph/onnx/tensor.h"
#include "src/graph/op_info.h"

namespace rekindle::graph {
namespace {

using Attributes = std::map<std::string, Attribute, std::less<>>;

// "node 12 '/layer/MatMul' (op MatMul)".
std::string node_text(const onnx::NodeProto& node, int position) {
  std::string text = "node " + std::to_string(position);
  if (!node.name().empty()) text += " '" + node.name() + "'";
  const std::string domain = own_domain(node.domain());
  return text + " (op " + (domain.empty() ? "" : domain + "::") + node.op_type() + ")";
}

// Control flow, which keeps graphs as attributes.
bool owns_bodies(const onnx::NodeProto& node) {
  const std::string domain = own_domain(node.domain());
  const std::string& op = node.op_type();
  return (domain.empty() || domain == kRekindleDomain) &&
         (op == "If" || op == "Loop" || op == "Scan" || op == "SequenceMap");
}

bool is_body(const onnx::AttributeProto& attribute) {
  const std::string& name = attribute.name();
  return attribute.type() == onnx::AttributeProto::GRAPH &&
         (name == "then_branch" || name == "else_branch" || name == "body");
}

// Where the exporter says the node came from.
void set_origin(const onnx::NodeProto& node, Node& to) {
  if (!node.doc_string().empty()) return read_origin(node.doc_string(), to);
  for (const auto& entry : node.metadata_props()) {
    if (entry.key() == "pkg.torch.onnx.stack_trace") return to.set_source(entry.value());
  }
  to.set_source(node.name());
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

// ONNX has several attributes for literals; Rekindle has one.
Status normalize_constant(const std::string& what, Attributes& attributes) {
  if (attributes.size() != 1) return corruption(what + ": it must have exactly one attribute");
  const auto& [name, attribute] = *attributes.begin();
  std::optional<ConstantPtr> literal = literal_of(name, attribute);
  if (!literal) return unsupported(what + ": attribute '" + name + "' is not supported");
  attributes = {{"value", *std::move(literal)}};
  return {};
}

// All but graphs, which import_bodies reads.
Status import_attributes(const onnx::NodeProto& proto, const std::string& what, Attributes& attributes) {
  for (const onnx::AttributeProto& attribute : proto.attribute()) {
    const std::string name = what + ", attribute '" + attribute.name() + "'";
    if (is_body(attribute) && owns_bodies(proto)) continue;
    // What an Optional may hold, the value says.
    if (attribute.type() == onnx::AttributeProto::TYPE_PROTO && proto.op_type() == "Optional") continue;
    REKINDLE_ASSIGN_OR_RETURN(Attribute value, attribute_from_onnx(attribute, name));
    if (!attributes.emplace(attribute.name(), std::move(value)).second)
      return corruption(name + " is given twice");
  }
  return restore_exact_floats(proto, what, attributes);
}

// An attribute of ONNX that nobody reads would change the meaning of its node unnoticed.
Status check_attribute_names(const Node& node, const std::string& what) {
  for (const auto& [name, attribute] : node.attributes()) {
    if ((node.domain().empty() || node.domain() == kMicrosoftDomain) && !expected_kind(node, name)) {
      return unsupported(what + ": attribute '" + name + "' is not known");
    }
  }
  return {};
}

// Sequences and optional values have no type here, but their elements must be tensors that Rekindle has.
Result<TensorType> type_from_onnx(const onnx::TypeProto& proto, const std::string& what) {
  TensorType type;
  if (proto.value_case() == onnx::TypeProto::VALUE_NOT_SET) return type;
  if (proto.has_sequence_type() || proto.has_optional_type()) {
    const onnx::TypeProto& element =
        proto.has_sequence_type() ? proto.sequence_type().elem_type() : proto.optional_type().elem_type();
    REKINDLE_ASSIGN_OR_RETURN(TensorType checked, type_from_onnx(element, what));
    return TensorType{};
  }
  if (!proto.has_tensor_type()) return unsupported(what + " is a map or a sparse tensor, not a tensor");
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

Result<TensorType> type_from_onnx(const onnx::ValueInfoProto& info) {
  return type_from_onnx(info.type(), "ONNX model: value '" + info.name() + "'");
}

}  // namespace

Result<std::unique_ptr<Graph>> OnnxGraphImporter::run(const onnx::GraphProto& proto) {
  graph_ = std::make_unique<Graph>(proto.name());
  for (const auto& [domain, version] : opsets_.graph) graph_->set_opset(domain, version);
  REKINDLE_RETURN_IF_ERROR(import_inputs(proto));
  REKINDLE_RETURN_IF_ERROR(import_initializers(proto));
  for (int i = 0; i < proto.node_size(); ++i) {
    if (Status status = import_node(proto.node(i), i); !status.ok()) return status.error();
  }
  REKINDLE_RETURN_IF_ERROR(import_outputs(proto));
  return std::move(graph_);
}

// Names `value`, which the model defines.
Status OnnxGraphImporter::define(Value* value, const std::string& name, const std::string& what) {
  if (!defined_.insert(name).second)
    return corruption("ONNX model: " + what + " defines '" + name + "' a second time");
  graph_->claim_name(value, name);
  return {};
}

// The value of that name here or in a graph around this one; null when there is none.
Value* OnnxGraphImporter::resolve(const std::string& name) {
  if (defined_.contains(name)) return graph_->find_value(name);
  Value* captured = outer_ == nullptr ? nullptr : outer_->resolve(name);
  if (captured == nullptr) return nullptr;
  Value* input = graph_->add_input("", captured->type());
  defined_.insert(name);
  graph_->claim_name(input, name);
  captured_.push_back(captured);
  return input;
}

Status OnnxGraphImporter::import_inputs(const onnx::GraphProto& proto) {
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

Status OnnxGraphImporter::import_initializers(const onnx::GraphProto& proto) {
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

Status OnnxGraphImporter::import_node(const onnx::NodeProto& proto, int position) {
  const std::string what = "ONNX model: " + node_text(proto, position);
  NodeSpec spec{.op_type = proto.op_type(), .domain = own_domain(proto.domain())};
  REKINDLE_RETURN_IF_ERROR(import_attributes(proto, what, spec.attributes));
  for (const std::string& name : proto.input()) {
    Value* value = name.empty() ? nullptr : resolve(name);
    if (!name.empty() && value == nullptr)
      return corruption(what + ": input '" + name + "' is not defined above it");
    spec.inputs.push_back(value);
  }
  if (owns_bodies(proto)) {
    if (spec.op_type == "Scan" && spec.domain.empty() && opsets_.onnx < 9)
      return unsupported(what + ": the Scan of opset 8 is another operator; convert the model to opset 9");
    REKINDLE_RETURN_IF_ERROR(import_bodies(proto, spec));
  }
  int outputs = proto.output_size();
  while (outputs > 0 && proto.output(outputs - 1).empty()) --outputs;
  spec.outputs = static_cast<std::size_t>(outputs);
  if (spec.domain.empty() && spec.op_type != "Constant")
    REKINDLE_RETURN_IF_ERROR(normalize_node(*graph_, spec, opsets_.onnx, what));
  if (find_op(spec.domain, spec.op_type) == nullptr || !proto.overload().empty()) {
    return unsupported(what + ": Rekindle does not know this op");
  }
  if (!graph_->opsets().contains(spec.domain))
    return corruption(what + ": the model has no opset for its domain");
  if (spec.op_type == "Constant" && spec.domain.empty())
    REKINDLE_RETURN_IF_ERROR(normalize_constant(what, spec.attributes));
  Node* node = graph_->create_node(std::move(spec));
  set_origin(proto, *node);
  REKINDLE_RETURN_IF_ERROR(name_outputs(proto, *node, what));
  return check_attribute_names(*node, what);
}

Status OnnxGraphImporter::name_outputs(const onnx::NodeProto& proto, const Node& node,
                                       const std::string& what) {
  for (std::size_t i = 0; i < node.outputs().size(); ++i) {
    Value* value = node.output(i);
    const std::string& name = proto.output(static_cast<int>(i));
    if (!name.empty()) REKINDLE_RETURN_IF_ERROR(define(value, name, what));
    if (const ConstantPtr constant = constant_of(value)) value->set_type(type_of(*constant));
  }
  return {};
}

// ONNX's control flow becomes ours (src/graph/control_flow.h); ours comes as it is.
Status OnnxGraphImporter::import_bodies(const onnx::NodeProto& proto, NodeSpec& spec) {
  const bool own = spec.domain == kRekindleDomain;
  spec.domain = kRekindleDomain;
  opsets_.graph[std::string(kRekindleDomain)] = kRekindleOpset;
  graph_->set_opset(std::string(kRekindleDomain), kRekindleOpset);
  const std::size_t first = spec.op_type == "Loop" ? 2 : 0;
  if (spec.inputs.size() < first) spec.inputs.resize(first, nullptr);
  for (const char* name : {"then_branch", "else_branch", "body"}) {
    for (const onnx::AttributeProto& attribute : proto.attribute()) {
      if (attribute.name() != name || attribute.type() != onnx::AttributeProto::GRAPH) continue;
      if (spec.attributes.contains(name))
        return corruption("ONNX model: op " + spec.op_type + " has attribute '" + name + "' twice");
      OnnxGraphImporter inner(opsets_, own ? nullptr : this);
      REKINDLE_ASSIGN_OR_RETURN(std::unique_ptr<Graph> body, inner.run(attribute.g()));
      const std::size_t inputs = body->inputs().size() - inner.captured().size();
      spec.inputs.insert(spec.inputs.end(), inner.captured().begin(), inner.captured().end());
      spec.attributes.insert_or_assign(name, GraphPtr(std::move(body)));
      if (own || spec.op_type == "If") continue;
      const auto scanned = spec.attributes.find("num_scan_inputs");
      const auto* elements =
          scanned == spec.attributes.end() ? nullptr : std::get_if<std::int64_t>(&scanned->second);
      const std::int64_t before = static_cast<std::int64_t>(first) + (elements == nullptr ? 0 : *elements);
      spec.attributes.insert_or_assign("carried", static_cast<std::int64_t>(inputs) - before);
    }
  }
  return {};
}

Status OnnxGraphImporter::import_outputs(const onnx::GraphProto& proto) {
  for (const onnx::ValueInfoProto& info : proto.output()) {
    Value* value = resolve(info.name());
    if (value == nullptr) return corruption("ONNX model: output '" + info.name() + "' is not defined");
    graph_->add_output(value);
    REKINDLE_RETURN_IF_ERROR(annotate(info));
  }
  for (const onnx::ValueInfoProto& info : proto.value_info()) REKINDLE_RETURN_IF_ERROR(annotate(info));
  return {};
}

// Sets the type of a value that has none yet. Types of names that the graph does not define say nothing.
Status OnnxGraphImporter::annotate(const onnx::ValueInfoProto& info) {
  REKINDLE_ASSIGN_OR_RETURN(TensorType type, type_from_onnx(info));
  Value* value = defined_.contains(info.name()) ? graph_->find_value(info.name()) : nullptr;
  if (value != nullptr && value->type() == TensorType{}) value->set_type(std::move(type));
  return {};
}

}  // namespace rekindle::graph
