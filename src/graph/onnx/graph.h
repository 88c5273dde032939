// GraphProto -> Graph. Internal to the importer; its input is not trusted.
#pragma once

#include <onnx/onnx-ml.pb.h>

#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "src/base/result.h"
#include "src/graph/graph.h"

namespace rekindle::graph {

// What all graphs of a model share.
struct OnnxOpsets {
  // Of the graph that is made, per domain.
  std::map<std::string, std::int64_t, std::less<>> graph;
  // Of the model's nodes of ONNX's own domain.
  std::int64_t onnx = 0;
};

// Makes one graph. A graph inside a node reads values of those around it: each becomes an input, and
// `captured` of that graph's importer tells what it stands for.
class OnnxGraphImporter {
 public:
  explicit OnnxGraphImporter(OnnxOpsets& opsets, OnnxGraphImporter* outer = nullptr)
      : opsets_(opsets), outer_(outer) {}

  Result<std::unique_ptr<Graph>> run(const onnx::GraphProto& proto);
  // Values of `outer` for the inputs that follow the graph's own.
  const std::vector<Value*>& captured() const { return captured_; }

 private:
  Status define(Value* value, const std::string& name, const std::string& what);
  Value* resolve(const std::string& name);
  Status import_inputs(const onnx::GraphProto& proto);
  Status import_initializers(const onnx::GraphProto& proto);
  Status import_node(const onnx::NodeProto& proto, int position);
  Status import_bodies(const onnx::NodeProto& proto, NodeSpec& spec);
  Status name_outputs(const onnx::NodeProto& proto, const Node& node, const std::string& what);
  Status import_outputs(const onnx::GraphProto& proto);
  Status annotate(const onnx::ValueInfoProto& info);

  OnnxOpsets& opsets_;  // of all graphs: a body has those of the graph around it
  OnnxGraphImporter* outer_;
  std::unique_ptr<Graph> graph_;
  std::unordered_set<std::string> defined_;  // by the model; the graph has fresh names besides
  std::vector<Value*> captured_;
};

}  // namespace rekindle::graph
