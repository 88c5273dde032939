#include "session/autograd_node.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <queue>
#include <utility>

namespace rekindle::session {

using torch::autograd::edge_list;
using torch::autograd::variable_list;

namespace {

// Per gradient of `plan`, which has fewer than the full graph when it is for fewer cotangents: its place in
// the full graph's.
std::vector<std::size_t> places_of(const Plan& plan, const autodiff::JointGraph& full) {
  std::vector<std::size_t> places;
  const auto& gradient_of = plan.joint->gradient_of;
  for (std::size_t i = 0; i < full.gradient_of.size() && places.size() < gradient_of.size(); ++i) {
    if (full.gradient_of[i] == gradient_of[places.size()]) places.push_back(i);
  }
  return places;
}

// The edges of a node in such an order that the engine runs what they lead to in the order of `wanted`.
// Leaves are all as urgent; of those that become ready together the engine's heap takes the first, then, if
// they are three or more, not the second. What else is ready is assumed to be nothing but the next node of
// the chain.
std::vector<std::size_t> as_edges(const std::vector<std::size_t>& wanted, bool linked) {
  using Ready = std::pair<bool, std::size_t>;  // whether it is a leaf; which edge leads to it
  const auto runs_later = [](const Ready& a, const Ready& b) { return a.first < b.first; };
  std::priority_queue<Ready, std::vector<Ready>, decltype(runs_later)> queue(runs_later);
  for (std::size_t i = 0; i < wanted.size(); ++i) queue.emplace(true, i);
  if (linked) queue.emplace(false, wanted.size());
  std::vector<std::size_t> edges(wanted.size());
  for (const std::size_t each : wanted) {
    edges[queue.top().second] = each;
    queue.pop();
  }
  return edges;
}

constexpr const char* kSecondTime =
    "Trying to backward through the graph a second time (or directly access saved tensors after they have "
    "already been freed). Saved intermediate values of the graph are freed when you call .backward() or "
    "autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time or "
    "if you need to access saved tensors after calling backward.";

// Whether the backward runs under vmap, as with is_grads_batched: its cotangents stand for many, which no
// plan is for.
bool is_mapped() {
  return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode) ||
         c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::VmapMode);
}

}  // namespace

Backward::Backward(std::shared_ptr<PlanCache> plans, FramePool::Handle frame, ReplayState replay)
    : plans_(std::move(plans)),
      plan_(frame->shared_plan()),
      replay_(std::move(replay)),
      frame_(std::move(frame)),
      freed_(plans_->groups().none_freed()) {}

void Backward::begin(const variable_list& cotangents, const Flags& wanted) {
  const auto run = std::make_shared<Run>();
  run->gradients.resize(gradients());
  Flags present;
  for (const auto& cotangent : cotangents) present.push_back(cotangent.defined());
  const bool any = std::ranges::find(present, true) != present.end();
  bool again = at::GradMode::is_enabled() || is_mapped();
  std::vector<at::Tensor> inputs;
  Cut cut;
  if (any) {
    const std::lock_guard lock(mutex_);
    if (const auto known = cuts_.find(torch::autograd::get_current_graph_task_id()); known != cuts_.end()) {
      cut.results = std::move(known->second.results);
      cuts_.erase(known);
      again = true;
    }
    const SavedGroups& groups = plans_->groups();
    TORCH_CHECK(!groups.meets(freed_, present, wanted), kSecondTime);
    const BackwardPart part = part_of(present);
    check_versions(part);
    const bool keep = torch::autograd::get_current_graph_task_keep_graph();
    if (!keep) groups.free(freed_, present, wanted);
    Rest rest = keep ? Rest() : rest_for(groups.left(freed_));
    if (again) inputs = forward_inputs();
    if (!again) take_frame(*run, part, keep);
    first_ = false;
    if (!keep) {
      frame_.reset();
      rest_ = std::move(rest);
    }
  }
  if (any && again) {
    run->gradients = replay(inputs, cotangents, cut);
  } else if (any) {
    bind(*run, cotangents);
  }
  const std::lock_guard lock(mutex_);
  runs_[torch::autograd::get_current_graph_task_id()] = run;
}

variable_list Backward::reach(std::size_t result, const at::Tensor& cotangent,
                              const std::vector<std::size_t>& others, bool goes_on) {
  Cut cut{others, true};
  variable_list cotangents(plans_->joint().cotangent_of.size());
  cotangents.at(result) = cotangent;
  Flags present(cotangents.size(), false);
  present[result] = true;
  std::vector<at::Tensor> inputs;
  {
    const std::lock_guard lock(mutex_);
    const bool freed = frame_ == nullptr && rest_.inputs.empty();
    TORCH_CHECK(!freed && !plans_->groups().meets_before(freed_, result, others), kSecondTime);
    check_versions(part_of(present));
    inputs = forward_inputs();
    if (goes_on) {
      auto& all = cuts_[torch::autograd::get_current_graph_task_id()].results;
      for (const std::size_t other : others) {
        if (std::ranges::find(all, other) == all.end()) all.push_back(other);
      }
    }
  }
  return replay(inputs, cotangents, cut);
}

variable_list Backward::advance(std::size_t part, bool last) {
  const int task = torch::autograd::get_current_graph_task_id();
  std::shared_ptr<Run> run;
  {
    const std::lock_guard lock(mutex_);
    const auto known = runs_.find(task);
    TORCH_INTERNAL_ASSERT(known != runs_.end(), "a backward continues that has not begun");
    run = known->second;
    runs_.erase(known);  // an error leaves nothing behind
  }
  if (run->frame != nullptr) run_to(*run, part);
  variable_list gradients(plans_->joint().gradient_of.size());
  gradients.swap(run->gradients);
  if (last) return gradients;
  if (run->frame == nullptr || run->frame->shared_plan() != plan_)
    run->gradients = gradients;  // all are there already; later nodes take theirs
  const std::lock_guard lock(mutex_);
  runs_[task] = std::move(run);
  return gradients;
}

BackwardPart Backward::part_of(const Flags& present) const {
  return frame_ != nullptr ? plans_->whole(present)
                           : BackwardPart{present, plans_->groups().open(freed_, present)};
}

void Backward::check_versions(const BackwardPart& part) const {
  if (frame_ != nullptr && part.present == plan_->present) return frame_->check_versions();
  values_for(part, false).check_versions();
}

SavedValues Backward::values_for(const BackwardPart& part, bool own) const {
  const auto names = plans_->read_for(part);
  return frame_ != nullptr ? frame_->saved_values(*names, own) : rest_.values.only(*names);
}

Backward::Rest Backward::rest_for(const BackwardPart& left) const {
  Rest rest;
  if (left.empty()) return rest;
  rest.values = values_for(left, true);
  if (!rest.values.empty() && replay_.replay != nullptr) rest.inputs = forward_inputs();
  return rest;
}

void Backward::take_frame(Run& run, const BackwardPart& part, bool keep) {
  if (frame_ != nullptr && part.present == plan_->present) {
    if (keep) {
      run.copy = frame_->copy_for_backward();
    } else {
      run.other = std::move(frame_);
    }
  } else {
    run.other = plans_->find_for_part(*plan_, part, first_)->acquire();
    run.other->take_saved(values_for(part, false));
  }
  run.frame = run.copy != nullptr ? run.copy.get() : run.other.get();
  run.places = places_of(run.frame->plan(), plans_->joint());
}

std::vector<at::Tensor> Backward::forward_inputs() const {
  if (frame_ == nullptr) return rest_.inputs;
  std::vector<at::Tensor> inputs;
  for (const SlotId slot : plan_->forward.inputs) inputs.push_back((*frame_)[slot]);
  return inputs;
}

variable_list Backward::replay(const std::vector<at::Tensor>& inputs, const variable_list& cotangents,
                               const Cut& cut) const {
  TORCH_CHECK_NOT_IMPLEMENTED(
      replay_.replay != nullptr && inputs.size() == plan_->forward.inputs.size(),
      "create_graph=True, is_grads_batched=True and gradients of results need a session with a replay "
      "(Session::set_replay), and the first backward of a forward");
  return (*replay_.replay)(inputs, replay_.random_state, cotangents, cut);
}

void Backward::bind(Run& run, const variable_list& cotangents) const {
  const Plan& plan = run.frame->plan();
  std::size_t next = 0;
  for (const auto& cotangent : cotangents) {
    if (!cotangent.defined()) continue;
    const SlotId slot = plan.backward.inputs[next++];
    const at::Tensor& meta = plan.slots[slot].meta;
    // The engine has checked sizes and dtype; only a stride can differ (an expanded cotangent, say).
    run.frame->bind(slot, !plan.slots[slot].open && cotangent.strides() == meta.strides()
                              ? cotangent
                              : cotangent.contiguous());
  }
}

void Backward::run_to(Run& run, std::size_t part) const {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const Plan& plan = run.frame->plan();
  // A plan for other cotangents has deliveries of its own, so all of it runs at once.
  const bool ours = run.frame->shared_plan() == plan_;
  const std::size_t deliveries = ours ? std::min(part + 1, plan.deliveries.size()) : plan.deliveries.size();
  for (; run.delivered < deliveries; ++run.delivered) {
    const Delivery& delivery = plan.deliveries[run.delivered];
    execute(plan.backward, *run.frame, run.done, delivery.end);
    run.done = delivery.end;
    for (const std::size_t output : delivery.gradients) {
      const SlotId slot = plan.backward.outputs[output];
      if (!run.frame->is_absent(plan.root_of(slot))) run.gradients[run.places[output]] = (*run.frame)[slot];
      run.frame->release(
          slot);  // the gradient's only owner is now its receiver, who may keep it without a copy
    }
  }
}

BackwardNode::BackwardNode(std::shared_ptr<Backward> backward, std::size_t part,
                           std::vector<std::size_t> delivers, edge_list next)
    : Node(std::move(next)), backward_(std::move(backward)), part_(part), delivers_(std::move(delivers)) {
  if (part_ > 0) add_input_metadata(Node::undefined_input());
}

std::vector<bool> BackwardNode::wanted(std::size_t gradients) const {
  std::vector<bool> wanted(gradients, false);
  for (const BackwardNode* node = this; node != nullptr;) {
    for (std::size_t i = 0; i < node->delivers_.size(); ++i)
      wanted[node->delivers_[i]] = node->task_should_compute_output(i);
    const auto next = node->linked() ? node->next_edge(node->delivers_.size()).function.get() : nullptr;
    node = static_cast<const BackwardNode*>(next);
  }
  return wanted;
}

variable_list BackwardNode::apply(variable_list&& inputs) {
  const bool last = !linked() || !task_should_compute_output(delivers_.size());
  if (part_ == 0) backward_->begin(inputs, wanted(backward_->gradients()));
  variable_list all = backward_->advance(part_, last);
  variable_list delivered(num_outputs());
  for (std::size_t i = 0; i < delivers_.size(); ++i) delivered[i] = std::move(all[delivers_[i]]);
  return delivered;
}

std::shared_ptr<torch::autograd::Node> make_backward_chain(const std::shared_ptr<Backward>& state,
                                                           const edge_list& gradient_edges) {
  const std::shared_ptr<const Plan> plan = state->plan();
  const std::vector<std::size_t> places = places_of(*plan, state->joint());
  std::vector<bool> unplaced(gradient_edges.size(), true);
  for (const std::size_t place : places) unplaced[place] = false;
  std::shared_ptr<torch::autograd::Node> next;
  const std::size_t parts = std::max<std::size_t>(plan->deliveries.size(), 1);
  for (std::size_t part = parts; part-- > 0;) {
    std::vector<std::size_t> delivers;
    if (part < plan->deliveries.size()) {
      for (const std::size_t output : plan->deliveries[part].gradients) delivers.push_back(places[output]);
    }
    if (part + 1 == parts) {  // with the gradients that only another set of cotangents has
      for (std::size_t place = 0; place < unplaced.size(); ++place) {
        if (unplaced[place]) delivers.push_back(place);
      }
    }
    delivers = as_edges(delivers, next != nullptr);
    edge_list edges;
    for (const std::size_t place : delivers) edges.push_back(gradient_edges[place]);
    if (next != nullptr) edges.emplace_back(next, 0);
    next = std::shared_ptr<torch::autograd::Node>(
        new BackwardNode(state, part, std::move(delivers), std::move(edges)), torch::autograd::deleteNode);
  }
  return next;
}

}  // namespace rekindle::session
