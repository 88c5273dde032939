#include "session/model.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "session/lower/op.h"
#include "src/graph/text/print.h"

namespace rekindle::session {
namespace {

// Empty when every node can be run.
std::string missing_op(const graph::Graph& graph) {
  for (const auto& node : graph.nodes()) {
    for (const auto& [name, attribute] : node->attributes()) {
      const auto* body = std::get_if<graph::GraphPtr>(&attribute);
      if (body == nullptr) continue;
      if (std::string missing = missing_op(**body); !missing.empty()) return missing;
    }
    if (find_lowering(node->domain(), node->op_type()) == nullptr &&
        find_interpretation(node->domain(), node->op_type()) == nullptr)
      return "the session has no lowering for " + graph::describe(*node);
  }
  return {};
}

// Results that are views of an input, or of each other, get memory of their own.
void own(RunValues& outputs, const RunValues& inputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].isTensor()) continue;
    const auto shares = [&](const RunValue& other) {
      return other.isTensor() && other.toTensor().is_alias_of(outputs[i].toTensor());
    };
    if (std::ranges::any_of(inputs, shares) ||
        std::any_of(outputs.begin(), outputs.begin() + static_cast<std::ptrdiff_t>(i), shares))
      outputs[i] = outputs[i].toTensor().clone();
  }
}

}  // namespace

Result<std::shared_ptr<Model>> Model::create(std::unique_ptr<graph::Graph> graph) {
  if (const std::string missing = missing_op(*graph); !missing.empty()) return unsupported(missing);
  auto model = std::make_shared<Model>();
  autodiff::JointGraph joint{.graph = graph->clone(),
                             .forward_inputs = graph->inputs().size(),
                             .forward_outputs = graph->outputs().size(),
                             .cotangent_of = {},
                             .gradient_of = {}};
  model->graph_ = std::move(graph);
  SessionOptions options;
  options.defers = false;  // what is sized by data is interpreted, with the rest
  if (auto session = Session::create(std::move(joint), std::move(options)); session.ok()) {
    model->session_ = *std::move(session);
  } else {
    model->why_interpreted_ = session.error().message;
  }
  return model;
}

RunValues Model::run_planned(const RunValues& inputs) {
  std::vector<at::Tensor> tensors;
  for (const RunValue& input : inputs) tensors.push_back(input.toTensor());
  RunValues outputs;
  for (at::Tensor& output : session_->forward(tensors, /*record=*/false))
    outputs.emplace_back(std::move(output));
  return outputs;
}

RunValues Model::run(const RunValues& inputs) {
  const bool tensors = std::ranges::all_of(inputs, [](const RunValue& input) { return input.isTensor(); });
  if (session_ != nullptr && tensors) {
    std::string why;
    try {
      std::vector<at::Tensor> given;
      for (const RunValue& input : inputs) given.push_back(input.toTensor());
      session_->prepare(given, /*record=*/false);
    } catch (const c10::Error& error) {
      why = error.what_without_backtrace();
    } catch (const std::exception& error) {  // of a meta kernel that Python implements
      why = error.what();
    }
    const std::lock_guard lock(mutex_);
    why_interpreted_ = std::move(why);
  }
  if (why_interpreted().empty() && tensors && session_ != nullptr) return run_planned(inputs);
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  RunValues outputs = interpret(*graph_, inputs);
  own(outputs, inputs);
  return outputs;
}

std::string Model::why_interpreted() const {
  const std::lock_guard lock(mutex_);
  return why_interpreted_;
}

}  // namespace rekindle::session
