#include "session/run/host_tape.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "session/lower/autocast_scope.h"
#include "session/run/tape_end.h"

namespace rekindle::session {
namespace {

using torch::autograd::Edge;
using torch::autograd::variable_list;

bool has_hooks(torch::autograd::Node& node) {
  return !node.pre_hooks().empty() || !node.tensor_pre_hooks().empty() || !node.post_hooks().empty() ||
         !node.retains_grad_hooks().empty();
}

// Makes the inputs require gradients as in eager. A detached tensor shares its version counter with the
// value, so that an edit in place is found as in eager.
void require_gradients(std::vector<at::Tensor>& inputs, const HostPlace& place) {
  std::vector<bool> needs(inputs.size(), false);
  for (const auto* positions : {&place.tracked, &place.needs})
    for (const std::int64_t position : *positions) needs.at(static_cast<std::size_t>(position)) = true;
  std::shared_ptr<torch::autograd::Node> end;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined() || inputs[i].requires_grad() == needs[i]) continue;
    inputs[i] = inputs[i].tensor_data();
    if (!needs[i]) continue;
    if (end == nullptr) end = make_tape_end("RekindleHostTape");
    torch::autograd::set_history(inputs[i], end);
  }
}

std::int64_t version_of(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_inference() ? tensor._version() : -1;
}

// Holds the caller's buffers as they are before a call that is not known to write to them.
class Before {
 public:
  Before(const std::vector<at::Tensor>& inputs, const std::vector<bool>& own, const HostPlace& place) {
    const at::NoGradGuard no_grad;
    for (const std::int64_t position : place.lasting) {
      const at::Tensor& input = inputs[static_cast<std::size_t>(position)];
      if (own[static_cast<std::size_t>(position)] || version_of(input) < 0 || input.requires_grad()) continue;
      if (input.nbytes() <= kMostBytes) kept_.push_back({input, input.clone(), input._version()});
    }
  }

  // Undoes what was written: eager runs the call once more.
  void put_back() const {
    const at::NoGradGuard no_grad;
    for (const Kept& kept : kept_) {
      if (kept.input._version() != kept.version) kept.input.copy_(kept.contents);
    }
  }

 private:
  struct Kept {
    at::Tensor input, contents;
    std::int64_t version;
  };

  // Of a tensor: counts, statistics, a codebook.
  static constexpr std::size_t kMostBytes = std::size_t{1} << 20;
  std::vector<Kept> kept_;
};

// Calls a function under the autocast of its place; the dispatch keys are the caller's already. Where it
// throws, as one does that writes what it did not when the graph was made, its writes are undone.
HostResults call_at(const HostPlace& place, HostFunction& function, const std::vector<at::Tensor>& inputs,
                    const std::vector<bool>& own, const std::vector<at::Tensor>& planned) {
  const Before before(inputs, own, place);
  std::optional<AutocastScope> autocast;
  if (place.autocast) autocast.emplace(place.device, *place.autocast);
  try {
    return function.call(inputs, own, planned);
  } catch (...) {
    before.put_back();
    throw;
  }
}

}  // namespace

HostResults HostTape::record(HostFunction& function, std::vector<at::Tensor> inputs,
                             const std::vector<bool>& own, const std::vector<at::Tensor>& planned,
                             const HostPlace& place, std::shared_ptr<HostTape>& tape) {
  tape = std::make_shared<HostTape>();
  const c10::impl::ForceDispatchKeyGuard keys(HostScope::keys());
  HostResults results = run_recorded(function, std::move(inputs), own, planned, place, *tape);
  if (tape->differentiable() != place.differentiable) function.differs_in_gradients(tape->differentiable());
  return results;
}

HostResults HostTape::run(HostFunction& function, std::vector<at::Tensor> inputs,
                          const std::vector<bool>& own, const std::vector<at::Tensor>& planned,
                          const HostPlace& place) {
  const c10::impl::ForceDispatchKeyGuard keys(HostScope::keys());
  if (place.needs.empty()) return call_at(place, function, inputs, own, planned);
  require_gradients(inputs, place);
  const at::AutoGradMode grad(place.grad);
  HostResults results = call_at(place, function, inputs, own, planned);
  std::vector<std::int64_t> differentiable;
  for (std::size_t i = 0; i < results.tensors.size(); ++i) {
    if (results.tensors[i].requires_grad()) differentiable.push_back(static_cast<std::int64_t>(i));
  }
  if (place.grad && differentiable != place.differentiable) function.differs_in_gradients(differentiable);
  return results;
}

HostResults HostTape::postpone(std::shared_ptr<HostFunction> function, std::vector<at::Tensor> inputs,
                               const std::vector<at::Tensor>& planned, const HostPlace& place,
                               std::shared_ptr<HostTape>& tape) {
  const c10::impl::ForceDispatchKeyGuard keys(HostScope::keys());
  auto postponed = std::make_unique<Postponed>();
  postponed->random_states = device::random_states();
  for (const at::Tensor& input : inputs) postponed->versions.push_back(version_of(input));
  std::vector<at::Tensor> given = inputs;
  require_gradients(given, place);
  const at::AutoGradMode no_grad(false);
  HostResults results = call_at(place, *function, given, std::vector<bool>(inputs.size(), false), planned);
  postponed->function = std::move(function);
  postponed->inputs = std::move(inputs);
  postponed->planned = planned;
  postponed->place = place;
  tape = std::make_shared<HostTape>();
  tape->postponed_ = std::move(postponed);
  return results;
}

std::shared_ptr<HostTape> HostTape::recorded() const {
  const Postponed& run = *postponed_;
  for (std::size_t i = 0; i < run.inputs.size(); ++i) {
    TORCH_CHECK(version_of(run.inputs[i]) == run.versions[i],
                "one of the variables needed for gradient computation has been modified by an inplace "
                "operation: input ",
                i, " of a function that the backward runs again (recompute=True)");
  }
  auto tape = std::make_shared<HostTape>();
  const device::RandomStates now = device::random_states();
  device::set_random_states(run.random_states);
  const auto put_back = c10::make_scope_exit([&] { device::set_random_states(now); });
  const at::ThreadLocalStateGuard settings(run.settings);
  run_recorded(*run.function, run.inputs, std::vector<bool>(run.inputs.size(), false), run.planned, run.place,
               *tape);
  TORCH_CHECK(tape->differentiable() == run.place.differentiable,
              "a function that the backward runs again (recompute=True) gives other results a gradient than "
              "when the graph was made");
  return tape;
}

HostResults HostTape::run_recorded(HostFunction& function, std::vector<at::Tensor> inputs,
                                   const std::vector<bool>& own, const std::vector<at::Tensor>& planned,
                                   const HostPlace& place, HostTape& tape) {
  require_gradients(inputs, place);
  for (const std::int64_t position : place.tracked) {
    tape.wanted_.push_back(torch::autograd::impl::gradient_edge(inputs[static_cast<std::size_t>(position)]));
  }
  HostResults results;
  {
    const at::AutoGradMode grad(true);
    results = call_at(place, function, inputs, own, planned);
  }
  for (at::Tensor& result : results.tensors) {
    tape.results_.push_back(result.requires_grad() ? torch::autograd::impl::gradient_edge(result) : Edge());
    if (result.defined()) result = result.tensor_data();
  }
  if (function.has_one_node()) tape.find_node(inputs, place.tracked);
  return results;
}

std::vector<std::int64_t> HostTape::differentiable() const {
  std::vector<std::int64_t> found;
  for (std::size_t i = 0; i < results_.size(); ++i) {
    if (results_[i].is_valid()) found.push_back(static_cast<std::int64_t>(i));
  }
  return found;
}

// A Function's node has one output for each of its tensors, which are the node's first inputs here.
void HostTape::find_node(const std::vector<at::Tensor>& inputs, const std::vector<std::int64_t>& tracked) {
  for (const Edge& edge : results_) {
    if (!edge.is_valid()) continue;
    if (node_ == nullptr) node_ = edge.function;
    if (node_ != edge.function) node_ = nullptr;
    if (node_ == nullptr) return;
  }
  if (node_ == nullptr) return;
  for (std::size_t i = 0; i < tracked.size(); ++i) {
    const auto end = inputs.begin() + static_cast<std::ptrdiff_t>(tracked[i]);
    gradients_.push_back(static_cast<std::size_t>(
        std::count_if(inputs.begin(), end, [](const at::Tensor& input) { return input.defined(); })));
    if (gradients_[i] >= node_->num_outputs() || node_->next_edge(gradients_[i]) != wanted_[i]) {
      node_ = nullptr;
      return;
    }
  }
}

std::vector<at::Tensor> HostTape::backward(const std::vector<at::Tensor>& cotangents) const {
  if (postponed_ != nullptr) return recorded()->backward(cotangents);
  const bool any =
      std::any_of(results_.begin(), results_.end(), [](const Edge& edge) { return edge.is_valid(); });
  if (!any) return std::vector<at::Tensor>(wanted_.size());
  const c10::impl::ForceDispatchKeyGuard keys(keys_with_autograd());
  return node_ != nullptr && !has_hooks(*node_) ? run_node(cotangents) : run_engine(cotangents);
}

std::vector<at::Tensor> HostTape::run_node(const std::vector<at::Tensor>& cotangents) const {
  variable_list given(node_->num_inputs());
  for (std::size_t i = 0; i < cotangents.size(); ++i) {
    if (results_.at(i).is_valid()) given.at(results_[i].input_nr) = cotangents[i];
  }
  variable_list all = (*node_)(std::move(given));
  TORCH_CHECK(all.size() == node_->num_outputs(), node_->name(), " returned ", all.size(),
              " gradients where ", node_->num_outputs(), " were expected");
  torch::autograd::validate_outputs(node_->next_edges(), all, [&](const std::string& message) {
    return "Function " + node_->name() + " returned an invalid gradient: " + message;
  });
  variable_list gradients;
  for (const std::size_t i : gradients_) gradients.push_back(std::move(all[i]));
  return gradients;
}

std::vector<at::Tensor> HostTape::run_engine(const std::vector<at::Tensor>& cotangents) const {
  torch::autograd::edge_list roots;
  variable_list given;
  for (std::size_t i = 0; i < cotangents.size(); ++i) {
    if (!cotangents[i].defined() || !results_.at(i).is_valid()) continue;
    roots.push_back(results_[i]);
    given.push_back(cotangents[i]);
  }
  if (roots.empty()) {  // eager's engine runs it without any, too
    std::ranges::copy_if(results_, std::back_inserter(roots), &Edge::is_valid);
    given.resize(roots.size());
  }
  // The graph is kept: who owns the tape decides how long it lives.
  return torch::autograd::Engine::get_default_engine().execute(roots, given, /*keep_graph=*/true,
                                                               /*create_graph=*/false,
                                                               /*accumulate_grad=*/false, wanted_);
}

}  // namespace rekindle::session
