#include "src/graph/onnx/import.h"

#include <onnx/onnx-ml.pb.h>

#include <algorithm>
#include <limits>

#include "src/graph/onnx/function.h"
#include "src/graph/onnx/graph.h"
#include "src/graph/op_info.h"
#include "src/graph/verify.h"

namespace rekindle::graph {
namespace {

Status import_opsets(const onnx::ModelProto& model, OnnxOpsets& opsets) {
  for (const onnx::OperatorSetIdProto& opset : model.opset_import()) {
    const std::string domain = opset.domain() == "ai.onnx" ? "" : opset.domain();
    // Another domain matters only when a node uses it, and is refused there.
    if (!domain.empty() && domain != kRekindleDomain && domain != kTorchDomain && domain != kMicrosoftDomain)
      continue;
    if (domain.empty()) {
      if (opset.version() < kMinOnnxOpset || opset.version() > kMaxOnnxOpset) {
        return unsupported("ONNX model: opset " + std::to_string(opset.version()) + " is not among " +
                           std::to_string(kMinOnnxOpset) + " to " + std::to_string(kMaxOnnxOpset) +
                           "; export it with opset 20");
      }
      opsets.onnx = opset.version();
      opsets.graph[domain] = std::max(opset.version(), kNormalOnnxOpset);
      continue;
    }
    const std::int64_t own = domain == kTorchDomain       ? kTorchOpset
                             : domain == kMicrosoftDomain ? 1
                                                          : kRekindleOpset;
    if (opset.version() != own) {
      return unsupported("ONNX model: version " + std::to_string(opset.version()) + " of domain " + domain +
                         " is not " + std::to_string(own) + "; export it again with this release");
    }
    opsets.graph[domain] = opset.version();
  }
  return {};
}

Result<std::unique_ptr<Graph>> import_model(onnx::ModelProto& model) {
  if (!model.has_graph()) return corruption("ONNX model: it has no graph");
  REKINDLE_RETURN_IF_ERROR(inline_functions(model));
  if (model.training_info_size() > 0) return unsupported("ONNX model: training information is not supported");
  OnnxOpsets opsets;
  REKINDLE_RETURN_IF_ERROR(import_opsets(model, opsets));
  REKINDLE_ASSIGN_OR_RETURN(std::unique_ptr<Graph> graph, OnnxGraphImporter(opsets).run(model.graph()));
  if (Status status = verify(*graph); !status.ok())
    return corruption("ONNX model: " + status.error().message);
  return graph;
}

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
  return import_model(model);
}

}  // namespace rekindle::graph
