#include "src/pipeline/pipeline.h"

#include <algorithm>

#include "src/autodiff/copy_biases.h"
#include "src/autodiff/rematerialize.h"
#include "src/base/bytes.h"
#include "src/graph/onnx/export.h"
#include "src/graph/onnx/import.h"
#include "src/graph/text/print.h"
#include "src/graph/verify.h"
#include "src/passes/pass_manager.h"

namespace rekindle::pipeline {
namespace {

constexpr std::uint32_t kFormatVersion = 1;

void write_indices(ByteWriter& writer, const std::vector<std::size_t>& indices) {
  writer.number<std::uint64_t>(indices.size());
  for (const std::size_t index : indices) writer.number<std::uint64_t>(index);
}

std::vector<std::size_t> read_indices(ByteReader& reader) {
  std::vector<std::size_t> indices(reader.count(sizeof(std::uint64_t)));
  for (std::size_t& index : indices) index = reader.number<std::uint64_t>();
  return indices;
}

bool strictly_increasing_below(const std::vector<std::size_t>& indices, std::size_t end) {
  return std::adjacent_find(indices.begin(), indices.end(), std::greater_equal<>()) == indices.end() &&
         (indices.empty() || indices.back() < end);
}

}  // namespace

const std::vector<std::string_view>& forward_passes() {
  static const std::vector<std::string_view> passes{"eliminate_identity", "fold_shapes", "fold_constants",
                                                    "eliminate_common_subexpressions",
                                                    "eliminate_dead_nodes"};
  return passes;
}

std::vector<std::string_view> joint_passes(const BuildOptions& options) {
  std::vector<std::string_view> passes{"eliminate_identity", "fold_constants",
                                       "eliminate_common_subexpressions"};
  if (options.target == Target::kCpu) passes.push_back("split_batch_norms");
  if (!options.eager_numerics) passes.push_back("fuse_accumulation");
  passes.push_back("eliminate_dead_nodes");
  return passes;
}

std::string pipeline_fingerprint() {
  std::string text = "joint " + std::to_string(kFormatVersion) + " rekindle opset " +
                     std::to_string(graph::kRekindleOpset) + " torch opset " +
                     std::to_string(graph::kTorchOpset);
  for (const auto& passes :
       {forward_passes(), joint_passes({Target::kCpu}), joint_passes({Target::kAccelerator})}) {
    text += " |";
    for (const std::string_view pass : passes) text += " " + std::string(pass);
  }
  return text + " | casts apart, weights first, rematerialize 2, copy biases";
}

Result<autodiff::JointGraph> build_joint_graph(std::string_view model,
                                               const std::vector<bool>& needs_gradient,
                                               const passes::ConstantEvaluator& evaluate,
                                               const TypeInference& infer_types,
                                               const BuildOptions& options) {
  REKINDLE_ASSIGN_OR_RETURN(std::unique_ptr<graph::Graph> forward, graph::import_onnx(model));
  if (needs_gradient.size() != forward->inputs().size()) {
    return invalid_argument("the model has " + std::to_string(forward->inputs().size()) +
                            " inputs, but needs_gradient has " + std::to_string(needs_gradient.size()) +
                            " entries");
  }
  return differentiate_and_simplify(*forward, needs_gradient, evaluate, infer_types, options);
}

Result<autodiff::JointGraph> differentiate_and_simplify(graph::Graph& forward,
                                                        const std::vector<bool>& needs_gradient,
                                                        const passes::ConstantEvaluator& evaluate,
                                                        const TypeInference& infer_types,
                                                        const BuildOptions& options) {
  passes::PassContext context;
  context.evaluate = evaluate;
  context.keeps_casts_apart = true;
  REKINDLE_RETURN_IF_ERROR(passes::run_passes_until_stable(forward, forward_passes(), context));
  context.keeps_casts_apart = false;
  if (infer_types) infer_types(forward);
  REKINDLE_ASSIGN_OR_RETURN(autodiff::JointGraph joint, autodiff::differentiate(forward, needs_gradient));
  REKINDLE_RETURN_IF_ERROR(passes::run_passes_until_stable(*joint.graph, joint_passes(options), context));
  if (options.target == Target::kCpu) {
    autodiff::rematerialize(joint);
    autodiff::copy_biases(joint);
  }
  return joint;
}

Result<std::string> serialize_joint_graph(const autodiff::JointGraph& joint) {
  REKINDLE_ASSIGN_OR_RETURN(const std::string model, graph::export_onnx(*joint.graph));
  ByteWriter writer;
  writer.number(kFormatVersion);
  writer.number<std::uint64_t>(joint.forward_inputs);
  writer.number<std::uint64_t>(joint.forward_outputs);
  write_indices(writer, joint.cotangent_of);
  write_indices(writer, joint.gradient_of);
  writer.string(model);
  return std::move(writer).take();
}

Result<autodiff::JointGraph> parse_joint_graph(std::string_view bytes) {
  ByteReader reader(bytes);
  const auto version = reader.number<std::uint32_t>();
  if (!reader.failed() && version != kFormatVersion) {
    return corruption("joint graph: format version " + std::to_string(version) + ", expected " +
                      std::to_string(kFormatVersion));
  }
  autodiff::JointGraph joint;
  joint.forward_inputs = reader.number<std::uint64_t>();
  joint.forward_outputs = reader.number<std::uint64_t>();
  joint.cotangent_of = read_indices(reader);
  joint.gradient_of = read_indices(reader);
  const std::string_view model = reader.string();
  if (!reader.at_end()) return corruption("joint graph: truncated, or followed by other bytes");
  REKINDLE_ASSIGN_OR_RETURN(joint.graph, graph::import_onnx(model));
  REKINDLE_RETURN_IF_ERROR(graph::verify(*joint.graph));
  const std::size_t inputs = joint.graph->inputs().size(), outputs = joint.graph->outputs().size();
  if (joint.forward_inputs > inputs || joint.cotangent_of.size() != inputs - joint.forward_inputs ||
      joint.forward_outputs > outputs || joint.gradient_of.size() != outputs - joint.forward_outputs ||
      !strictly_increasing_below(joint.cotangent_of, joint.forward_outputs) ||
      !strictly_increasing_below(joint.gradient_of, joint.forward_inputs)) {
    return corruption("joint graph: the numbers of inputs and outputs do not fit its graph");
  }
  return joint;
}

Result<std::string> describe_joint_graph(std::string_view bytes) {
  REKINDLE_ASSIGN_OR_RETURN(const autodiff::JointGraph joint, parse_joint_graph(bytes));
  return graph::print(*joint.graph);
}

}  // namespace rekindle::pipeline
