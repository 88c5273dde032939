#include "session/run/tape.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include "session/run/tape_end.h"

namespace rekindle::session {
namespace {

// Whether a backward around this one wants some gradients only, as torch.autograd.grad does: a node then
// leaves out what is not among them, and what a tape wants is not.
bool is_part_wanted() {
  const auto* wanted = torch::autograd::get_current_graph_task_exec_info();
  return wanted != nullptr && !wanted->empty();
}

}  // namespace

using torch::autograd::Edge;
using torch::autograd::variable_list;

std::vector<at::Tensor> Tape::record(const TorchOperator& op, std::vector<at::Tensor> inputs,
                                     const std::vector<std::int64_t>& tracked, std::shared_ptr<Tape>& tape) {
  tape = std::make_shared<Tape>();
  tape->inputs_ = make_tape_end("RekindleTape");
  tape->tracked_ = tracked.size();
  for (at::Tensor& input : inputs) {
    if (input.defined()) input = input.tensor_data();
  }
  for (const std::int64_t position : tracked) {
    torch::autograd::set_history(inputs.at(static_cast<std::size_t>(position)), tape->inputs_);
  }
  std::vector<at::Tensor> results;
  {
    const c10::impl::ForceDispatchKeyGuard keys(keys_with_autograd());
    const at::AutoGradMode grad(true);
    results = op.call(inputs);
  }
  for (at::Tensor& result : results) {
    tape->results_.push_back(result.requires_grad() ? torch::autograd::impl::gradient_edge(result) : Edge());
    if (result.defined()) result = result.tensor_data();
  }
  tape->find_node();
  return results;
}

void Tape::find_node() {
  for (const Edge& edge : results_) {
    if (!edge.is_valid()) continue;
    if (node_ != nullptr && node_ != edge.function.get()) return void(node_ = nullptr);
    node_ = edge.function.get();
  }
  if (node_ == inputs_.get()) node_ = nullptr;  // a result is an input
  if (node_ == nullptr) return;
  for (const Edge& edge : node_->next_edges()) {
    if (edge.is_valid() && edge.function != inputs_) return void(node_ = nullptr);
  }
}

std::vector<at::Tensor> Tape::backward(const std::vector<at::Tensor>& cotangents) const {
  bool any = false;
  for (std::size_t i = 0; i < cotangents.size(); ++i)
    any = any || (cotangents[i].defined() && results_.at(i).is_valid());
  if (!any) return std::vector<at::Tensor>(tracked_);
  const c10::impl::ForceDispatchKeyGuard keys(keys_with_autograd());
  return node_ != nullptr && !is_part_wanted() ? run_node(cotangents) : run_engine(cotangents);
}

std::vector<at::Tensor> Tape::run_node(const std::vector<at::Tensor>& cotangents) const {
  const at::AutoGradMode grad(false);
  variable_list given(node_->num_inputs());
  for (std::size_t i = 0; i < cotangents.size(); ++i) {
    if (results_[i].is_valid()) given.at(results_[i].input_nr) = cotangents[i];
  }
  variable_list found = (*node_)(std::move(given));
  torch::autograd::validate_outputs(node_->next_edges(), found, [&](const std::string& message) {
    return node_->name() + " returned an invalid gradient: " + message;
  });
  std::vector<at::Tensor> gradients(tracked_);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const Edge& edge = node_->next_edge(i);
    if (!edge.is_valid() || !found[i].defined()) continue;
    at::Tensor& gradient = gradients.at(edge.input_nr);
    gradient = gradient.defined() ? at::add(gradient, found[i]) : std::move(found[i]);
  }
  return gradients;
}

std::vector<at::Tensor> Tape::run_engine(const std::vector<at::Tensor>& cotangents) const {
  torch::autograd::edge_list roots, wanted;
  variable_list given;
  for (std::size_t i = 0; i < cotangents.size(); ++i) {
    if (!cotangents[i].defined() || !results_[i].is_valid()) continue;
    roots.push_back(results_[i]);
    given.push_back(cotangents[i]);
  }
  for (std::size_t i = 0; i < tracked_; ++i) wanted.emplace_back(inputs_, static_cast<std::uint32_t>(i));
  // The graph is kept: who owns the tape decides how long it lives.
  return torch::autograd::Engine::get_default_engine().execute(roots, given, /*keep_graph=*/true,
                                                               /*create_graph=*/false,
                                                               /*accumulate_grad=*/false, wanted);
}

}  // namespace rekindle::session
