// From exported bytes to a joint graph: import, simplify, differentiate,
// simplify again. And the bytes of a joint graph.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "src/autodiff/gradient.h"
#include "src/base/result.h"
#include "src/passes/pass.h"

namespace rekindle::pipeline {

using TypeInference = std::function<void(graph::Graph&)>;

// Where a graph will run. On an accelerator, batch norms stay one operator: its kernels are PyTorch's. And an
// elementwise op, which takes about as long as a product there, is computed again only where a plan finds
// that worth its time.
enum class Target { kCpu, kAccelerator };

struct BuildOptions {
  Target target = Target::kCpu;
  // true: each gradient of a value that is used twice is computed whole, then added, as in eager. false: the
  // second is computed into the sum, which needs no buffer and rounds otherwise.
  bool eager_numerics = false;
};

// The passes that run on an imported graph and on a joint graph, in order. Part of the key of a joint graph.
const std::vector<std::string_view>& forward_passes();
std::vector<std::string_view> joint_passes(const BuildOptions& options);
// Names of both lists and the version of this room's output; changes whenever
// cached joint graphs must not be reused.
std::string pipeline_fingerprint();

// `model`: ONNX bytes, untrusted. `needs_gradient[i]`: whether the gradient of graph input i is wanted.
// `evaluate` folds constants; it may be null. kCorruption or kInvalidArgument for bad bytes, kUnsupported
// (naming node and op) for ops that cannot be imported or differentiated. `infer_types` tells the types of
// values between the inputs and the outputs, which some gradients need; it may be null.
Result<autodiff::JointGraph> build_joint_graph(std::string_view model,
                                               const std::vector<bool>& needs_gradient,
                                               const passes::ConstantEvaluator& evaluate,
                                               const TypeInference& infer_types = nullptr,
                                               const BuildOptions& options = {});

// The part of it that follows the import: simplifies `forward`, and differentiates it.
Result<autodiff::JointGraph> differentiate_and_simplify(graph::Graph& forward,
                                                        const std::vector<bool>& needs_gradient,
                                                        const passes::ConstantEvaluator& evaluate,
                                                        const TypeInference& infer_types = nullptr,
                                                        const BuildOptions& options = {});

// Grammar: <version u32> <forward_inputs u64> <forward_outputs u64> <n u64> <cotangent_of u64>*n
//          <n u64> <gradient_of u64>*n <model string>
// where <model> is the joint graph as ONNX. Version history: 1 (first).
Result<std::string> serialize_joint_graph(const autodiff::JointGraph& joint);
// Untrusted: every index and count is checked against the graph. kCorruption names what is wrong.
Result<autodiff::JointGraph> parse_joint_graph(std::string_view bytes);

// Its text form (docs/ir.md).
Result<std::string> describe_joint_graph(std::string_view bytes);

}  // namespace rekindle::pipeline
