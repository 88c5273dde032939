#include "session/run/interpreter.h"

#include <unordered_map>
#include <utility>

#include "session/lower/op.h"
#include "src/base/registry.h"
#include "src/graph/op_info.h"
#include "src/graph/text/print.h"

namespace rekindle::session {
namespace {

Registry<Interpret>& interpreters() {
  static Registry<Interpret> instance;
  return instance;
}

// Where a graph runs: on the device of its inputs; where all are on the host, as the number of an iteration
// is, on that of the graph that it is in.
thread_local at::Device current_device = at::kCPU;

RunValues run_lowered(const graph::Node& node, const RunValues& inputs) {
  const Lower lower = find_lowering(node.domain(), node.op_type());
  TORCH_CHECK_NOT_IMPLEMENTED(lower != nullptr, "the session has no lowering for this op");
  std::vector<at::Tensor> tensors;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    TORCH_CHECK(inputs[i].isNone() || inputs[i].isTensor(), "input ", i, " is a sequence, not a tensor");
    tensors.push_back(inputs[i].isTensor() ? inputs[i].toTensor() : at::Tensor());
  }
  LowerContext context(node, tensors);
  context.set_device(current_device);
  const Lowering lowering = lower(context);
  RunValues results;
  for (at::Tensor& tensor : run_once(lowering, tensors)) results.emplace_back(std::move(tensor));
  return results;
}

at::Device device_of(const RunValues& inputs) {
  for (const RunValue& input : inputs) {
    if (input.isTensor() && input.toTensor().defined() && !input.toTensor().is_cpu())
      return input.toTensor().device();
  }
  return current_device;
}

class Run {
 public:
  Run(const graph::Graph& graph, at::Device device)
      : graph_(graph), outer_(std::exchange(current_device, device)) {
    for (const auto& node : graph.nodes()) {
      for (const graph::Value* input : node->inputs()) ++uses_[input];
    }
    for (const graph::Value* output : graph.outputs()) ++uses_[output];
  }

  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run() { current_device = outer_; }

  RunValues operator()(RunValues inputs) {
    TORCH_CHECK(inputs.size() == graph_.inputs().size(), "graph '", graph_.name(), "' takes ",
                graph_.inputs().size(), " inputs, not ", inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i)
      values_[graph_.inputs()[i]] = placed(std::move(inputs[i]));
    for (const auto& node : graph_.nodes()) run_node(*node);
    RunValues outputs;
    for (const graph::Value* output : graph_.outputs()) outputs.push_back(values_.at(output));
    return outputs;
  }

 private:
  void run_node(const graph::Node& node) {
    RunValues inputs;
    for (const graph::Value* input : node.inputs())
      inputs.push_back(input == nullptr ? RunValue() : values_.at(input));
    try {
      const Interpret interpret = find_interpretation(node.domain(), node.op_type());
      RunValues results = interpret == nullptr ? run_lowered(node, inputs) : interpret(node, inputs);
      TORCH_CHECK(results.size() >= node.outputs().size(), "it gives ", results.size(),
                  " results, the node has ", node.outputs().size());
      for (std::size_t i = 0; i < node.outputs().size(); ++i)
        values_[node.output(i)] = placed(std::move(results[i]));
    } catch (c10::Error& error) {
      error.add_context("while running " + graph::describe(node));
      throw;
    }
    for (const graph::Value* input : node.inputs()) {
      if (input != nullptr && --uses_[input] == 0) values_.erase(input);
    }
  }

  // Constants are made on the host.
  static RunValue placed(RunValue value) {
    if (!value.isTensor() || !value.toTensor().defined()) return value;
    return value.toTensor().to(current_device);
  }

  const graph::Graph& graph_;
  const at::Device outer_;
  std::unordered_map<const graph::Value*, RunValue> values_;
  std::unordered_map<const graph::Value*, std::size_t> uses_;
};

}  // namespace

InterpretRegistrar::InterpretRegistrar(std::string_view domain, std::string_view op_type,
                                       Interpret interpret) {
  interpreters().add(graph::qualified_name(domain, op_type), interpret);
}

Interpret find_interpretation(std::string_view domain, std::string_view op_type) {
  const Interpret* found = interpreters().find(graph::qualified_name(domain, op_type));
  return found == nullptr ? nullptr : *found;
}

std::vector<std::string> interpreted_ops() { return interpreters().names(); }

RunValues interpret(const graph::Graph& graph, RunValues inputs) {
  const at::Device device = device_of(inputs);
  return Run(graph, device)(std::move(inputs));
}

}  // namespace rekindle::session
