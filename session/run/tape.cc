#include "session/run/tape.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include "session/run/tape_end.h"

namespace rekindle::session {

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
  return results;
}

std::vector<at::Tensor> Tape::backward(const std::vector<at::Tensor>& cotangents) const {
  torch::autograd::edge_list roots, wanted;
  variable_list given;
  for (std::size_t i = 0; i < cotangents.size(); ++i) {
    if (!cotangents[i].defined() || !results_.at(i).is_valid()) continue;
    roots.push_back(results_[i]);
    given.push_back(cotangents[i]);
  }
  if (roots.empty()) return std::vector<at::Tensor>(tracked_);
  for (std::size_t i = 0; i < tracked_; ++i) wanted.emplace_back(inputs_, static_cast<std::uint32_t>(i));
  const c10::impl::ForceDispatchKeyGuard keys(keys_with_autograd());
  // The graph is kept: who owns the tape decides how long it lives.
  return torch::autograd::Engine::get_default_engine().execute(roots, given, /*keep_graph=*/true,
                                                               /*create_graph=*/false,
                                                               /*accumulate_grad=*/false, wanted);
}

}  // namespace rekindle::session
