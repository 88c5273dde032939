#include "session/autograd_node.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/graph_task.h>

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

// Whether the backward runs under vmap, as with is_grads_batched: its cotangents stand for many, which no
// plan is for.
bool is_mapped() {
  return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode) ||
         c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::VmapMode);
}

}  // namespace

Backward::Backward(std::shared_ptr<PlanCache> plans, FramePool::Handle frame, ReplayState replay)
    : plans_(std::move(plans)), replay_(std::move(replay)), frame_(std::move(frame)) {}

variable_list Backward::advance(std::size_t part, const variable_list& cotangents, bool last) {
  const int task = torch::autograd::get_current_graph_task_id();
  std::shared_ptr<Run> run;
  {
    const std::lock_guard lock(mutex_);
    auto& known = runs_[task];
    if (part == 0) known = std::make_shared<Run>();
    run = known;
  }
  TORCH_INTERNAL_ASSERT(run != nullptr, "a backward continues that has not begun");
  if (part == 0) begin(*run, cotangents);
  if (run->frame != nullptr) run_to(*run, part);
  variable_list gradients(plans_->joint().gradient_of.size());
  gradients.swap(run->gradients);
  if (last) {
    const std::lock_guard lock(mutex_);
    runs_.erase(task);
    if (consumed_) frame_.reset();
  } else if (run->frame == nullptr || run->frame->shared_plan() != frame_->shared_plan()) {
    run->gradients = gradients;  // all are there already; later nodes take theirs
  }
  return gradients;
}

void Backward::begin(Run& run, const variable_list& cotangents) {
  TORCH_CHECK(
      !consumed_,
      "Trying to backward through the graph a second time (or directly access saved tensors after they have "
      "already been freed). Saved intermediate values of the graph are freed when you call .backward() or "
      "autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time.");
  frame_->check_versions();
  const bool keep = torch::autograd::get_current_graph_task_keep_graph();
  consumed_ = !keep;
  run.gradients.resize(plans_->joint().gradient_of.size());
  if (at::GradMode::is_enabled() || is_mapped()) {
    run.gradients = replay(cotangents);
    return;
  }
  std::vector<bool> present;
  for (const auto& cotangent : cotangents) present.push_back(cotangent.defined());
  if (present != frame_->plan().present) {
    run.other = plans_->find_for_cotangents(frame_->plan(), present)->acquire();
    run.other->take_saved(*frame_);
    run.frame = run.other.get();
  } else if (keep) {
    run.copy = frame_->copy_for_backward();
    run.frame = run.copy.get();
  } else {
    run.frame = frame_.get();
  }
  run.places = places_of(run.frame->plan(), plans_->joint());
  bind(run, cotangents);
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
  const bool ours = run.frame->shared_plan() == frame_->shared_plan();
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

variable_list Backward::replay(const variable_list& cotangents) const {
  TORCH_CHECK_NOT_IMPLEMENTED(replay_.replay != nullptr,
                              "create_graph=True and is_grads_batched=True need a session with a "
                              "replay (Session::set_replay)");
  std::vector<at::Tensor> inputs;
  for (const SlotId slot : frame_->plan().forward.inputs) inputs.push_back((*frame_)[slot]);
  return (*replay_.replay)(inputs, replay_.random_state, cotangents);
}

BackwardNode::BackwardNode(std::shared_ptr<Backward> backward, std::size_t part,
                           std::vector<std::size_t> delivers, edge_list next)
    : Node(std::move(next)), backward_(std::move(backward)), part_(part), delivers_(std::move(delivers)) {
  if (part_ > 0) add_input_metadata(Node::undefined_input());
}

variable_list BackwardNode::apply(variable_list&& inputs) {
  const bool linked = num_outputs() > delivers_.size();
  const bool last = !linked || !task_should_compute_output(delivers_.size());
  variable_list all = backward_->advance(part_, inputs, last);
  variable_list delivered(num_outputs());
  for (std::size_t i = 0; i < delivers_.size(); ++i) delivered[i] = std::move(all[delivers_[i]]);
  return delivered;
}

std::shared_ptr<torch::autograd::Node> make_backward_chain(std::shared_ptr<PlanCache> plans,
                                                           FramePool::Handle frame, ReplayState replay,
                                                           const edge_list& gradient_edges) {
  const std::shared_ptr<const Plan> plan = frame->shared_plan();
  const std::vector<std::size_t> places = places_of(*plan, plans->joint());
  const auto state = std::make_shared<Backward>(plans, std::move(frame), std::move(replay));
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
