#include "src/graph/onnx/export.h"

#include <onnx/onnx-ml.pb.h>

#include <limits>

#include "src/graph/onnx/attribute.h"
#include "src/graph/onnx/origin.h"
#include "src/graph/verify.h"

namespace rekindle::graph {
namespace {

// The first version with metadata on nodes; any later one reads it.
constexpr std::int64_t kIrVersion = 10;

void type_to_onnx(const TensorType& type, onnx::TypeProto::Tensor& proto) {
  proto.set_elem_type(static_cast<int>(type.dtype));
  if (!type.dims) return;
  onnx::TensorShapeProto& shape = *proto.mutable_shape();
  for (const Dim& dim : *type.dims) {
    onnx::TensorShapeProto::Dimension& dimension = *shape.add_dim();
    if (dim.is_static()) dimension.set_dim_value(dim.size);
    if (!dim.symbol.empty()) dimension.set_dim_param(dim.symbol);
  }
}

void value_to_onnx(const Value& value, onnx::ValueInfoProto& proto) {
  proto.set_name(value.name());
  if (value.type() != TensorType{}) type_to_onnx(value.type(), *proto.mutable_type()->mutable_tensor_type());
}

void node_to_onnx(const Node& node, onnx::NodeProto& proto) {
  proto.set_op_type(node.op_type());
  if (!node.domain().empty()) proto.set_domain(node.domain());
  for (const Value* input : node.inputs()) proto.add_input(input == nullptr ? "" : input->name());
  for (const Value* output : node.outputs()) proto.add_output(output->name());
  for (const auto& [name, attribute] : node.attributes()) attribute_to_onnx(name, attribute, proto);
  if (const std::string origin = origin_text(node); !origin.empty()) proto.set_doc_string(origin);
}

}  // namespace

void graph_to_onnx(const Graph& graph, onnx::GraphProto& proto) {
  proto.set_name(graph.name());
  for (const Value* input : graph.inputs()) value_to_onnx(*input, *proto.add_input());
  for (const auto& node : graph.nodes()) {
    node_to_onnx(*node, *proto.add_node());
    for (const Value* output : node->outputs()) {
      const bool says_nothing = output->type() == TensorType{} || constant_of(output) != nullptr;
      if (!says_nothing && !graph.is_output(output)) value_to_onnx(*output, *proto.add_value_info());
    }
  }
  for (const Value* output : graph.outputs()) value_to_onnx(*output, *proto.add_output());
}

Result<std::string> export_onnx(const Graph& graph) {
  REKINDLE_RETURN_IF_ERROR(verify(graph));
  onnx::ModelProto model;
  model.set_ir_version(kIrVersion);
  model.set_producer_name("rekindle");
  for (const auto& [domain, version] : graph.opsets()) {
    onnx::OperatorSetIdProto& opset = *model.add_opset_import();
    opset.set_domain(domain);
    opset.set_version(version);
  }
  graph_to_onnx(graph, *model.mutable_graph());
  if (model.ByteSizeLong() > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    return unsupported("graph '" + graph.name() + "' needs " + std::to_string(model.ByteSizeLong()) +
                       " bytes as ONNX, more than protobuf's 2 GiB; pass large tensors as inputs");
  }
  std::string bytes;
  if (!model.SerializeToString(&bytes))
    return internal_error("graph '" + graph.name() + "' could not be serialized");
  return bytes;
}

}  // namespace rekindle::graph
