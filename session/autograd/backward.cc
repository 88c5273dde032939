#include "session/autograd/backward.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <mutex>

#include "session/autograd/needs_eager.h"
#include "session/run/left_out.h"

namespace rekindle::session {

using torch::autograd::variable_list;

namespace {

constexpr const char* kSecondTime =
    "Trying to backward through the graph a second time (or directly access saved tensors after they have "
    "already been freed). Saved intermediate values of the graph are freed when you call .backward() or "
    "autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time or "
    "if you need to access saved tensors after calling backward.";

}  // namespace

Backward::Backward(std::shared_ptr<PlanCache> plans, FramePool::Handle frame, SavedVersions versions,
                   ReplayState replay)
    : plans_(std::move(plans)),
      plan_(frame->shared_plan()),
      versions_(std::move(versions)),
      frame_(std::move(frame)),
      replay_(std::move(replay)),
      freed_(plans_->groups().none_freed()) {}

std::vector<std::size_t> Backward::places_of(const Plan& plan) const {
  std::vector<std::size_t> places;
  const auto& of_all = plans_->joint().gradient_of;
  const auto& gradient_of = plan.joint->gradient_of;
  for (std::size_t i = 0; i < of_all.size() && places.size() < gradient_of.size(); ++i) {
    if (of_all[i] == gradient_of[places.size()]) places.push_back(i);
  }
  return places;
}

void Backward::refuse_later_writes(std::shared_ptr<const std::vector<SavedTensor>> saved,
                                   std::span<const at::Tensor> written) {
  const std::lock_guard lock(mutex_);
  versions_.add_written(std::move(saved), written);
}

void Backward::arrive_undefined(std::size_t result) {
  const std::lock_guard lock(mutex_);
  cuts_[torch::autograd::get_current_graph_task_id()].undefined.push_back(result);
}

void Backward::begin(const Arrivals::Beginning& beginning) {
  const variable_list& cotangents = beginning.cotangents;
  const auto run = std::make_shared<Run>();
  run->gradients.resize(gradients());
  Flags present;
  for (const auto& cotangent : cotangents) present.push_back(cotangent.defined());
  Cut cut = take_cut(beginning.last);
  if (!plans_->functions_before().any_left_out(present, cut.undefined)) cut.undefined.clear();
  for (const std::size_t result : cut.undefined) present[result] = true;
  if (std::ranges::find(present, true) != present.end()) {
    const bool again = needs_eager(cotangents) || !cut.results.empty() || !cut.undefined.empty() ||
                       (is_watched() && may_replay());
    const Repeat repeat = take(*run, present, beginning, again);
    if (again) {
      run->gradients = replay(repeat, cotangents, cut);
    } else {
      bind(*run, cotangents);
    }
  }
  const std::lock_guard lock(mutex_);
  for (const std::size_t chain : beginning.chains)
    runs_[{torch::autograd::get_current_graph_task_id(), chain}] = run;
}

variable_list Backward::reach(std::size_t result, const at::Tensor& cotangent,
                              const std::vector<std::size_t>& others, bool goes_on) {
  const Cut cut{others, true, {}};
  variable_list cotangents(plans_->joint().cotangent_of.size());
  cotangents.at(result) = cotangent;
  Flags present(cotangents.size(), false);
  present[result] = true;
  Repeat repeat;
  {
    const std::lock_guard lock(mutex_);
    const bool freed = frame_ == nullptr && rest_.inputs.empty();
    TORCH_CHECK(!freed && !plans_->groups().meets_before(freed_, result, others), kSecondTime);
    check_versions(part_of(present), Flags(gradients(), true));
    repeat = {forward_inputs(), replay_};
    if (goes_on) {
      auto& all = cuts_[torch::autograd::get_current_graph_task_id()].results;
      for (const std::size_t other : others) {
        if (std::ranges::find(all, other) == all.end()) all.push_back(other);
      }
    }
  }
  return replay(repeat, cotangents, cut);
}

bool Backward::may_replay() {
  const std::lock_guard lock(mutex_);
  return replay_.replay != nullptr;
}

Cut Backward::take_cut(bool last) {
  const std::lock_guard lock(mutex_);
  const auto known = cuts_.find(torch::autograd::get_current_graph_task_id());
  if (known == cuts_.end()) return {};
  Cut cut = known->second;
  if (last) cuts_.erase(known);
  return cut;
}

Backward::Repeat Backward::take(Run& run, const Flags& present, const Arrivals::Beginning& beginning,
                                bool again) {
  const Flags& wanted = beginning.wanted;
  const SavedGroups& groups = plans_->groups();
  const bool keep = !beginning.last || torch::autograd::get_current_graph_task_keep_graph();
  FramePool::Handle frame;  // what is let go, which may run Python: without the lock
  Rest rest;
  ReplayState ended;
  std::shared_ptr<FramePool> pool;  // for `planned`, if the forward's own frame does not do
  BackwardPart planned;
  for (bool first = true;; pool = plans_->find_for_part(*plan_, planned, first)) {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(!groups.meets(freed_, present, wanted), kSecondTime);
    const BackwardPart part = part_of(present);
    versions_.check(groups, present, wanted, plans_->joint());
    check_versions(part, wanted);
    if (!again && !is_planned(part) && (pool == nullptr || planned != part)) {
      planned = part;
      first = first_;
      continue;
    }
    if (!keep) groups.free(freed_, present, wanted);
    if (!keep) rest = rest_for(groups.left(freed_));
    Repeat repeat = again ? Repeat{forward_inputs(), replay_} : Repeat();
    if (!again) take_frame(run, part, wanted, pool.get(), keep);
    first_ = false;
    if (!keep) {
      frame.swap(frame_);
      std::swap(rest, rest_);
      if (rest_.values.empty()) std::swap(ended, replay_);  // its module may keep a result of the call
    }
    return repeat;
  }
}

variable_list Backward::advance(std::size_t chain, std::size_t part, const std::vector<std::size_t>& places,
                                bool last) {
  const std::pair<int, std::size_t> of{torch::autograd::get_current_graph_task_id(), chain};
  std::shared_ptr<Run> run;
  {
    const std::lock_guard lock(mutex_);
    const auto known = runs_.find(of);
    TORCH_INTERNAL_ASSERT(known != runs_.end(), "a backward continues that has not begun");
    run = known->second;
    runs_.erase(known);
  }
  try {
    if (run->frame != nullptr) run_to(*run, part);
  } catch (...) {
    *run = Run();  // an error leaves nothing behind, for the run's other chains either
    throw;
  }
  variable_list gradients;
  for (const std::size_t place : places) gradients.push_back(std::move(run->gradients[place]));
  if (last) return gradients;
  const std::lock_guard lock(mutex_);
  runs_[of] = std::move(run);
  return gradients;
}

BackwardPart Backward::part_of(const Flags& present) const {
  return frame_ != nullptr ? plans_->whole(present)
                           : BackwardPart{present, plans_->groups().open(freed_, present)};
}

bool Backward::is_planned(const BackwardPart& part) const {
  return frame_ != nullptr && part.present == plan_->present;
}

void Backward::check_versions(const BackwardPart& part, const Flags& wanted) const {
  if (!is_planned(part)) return values_for(part, false).check_versions();
  const std::vector<std::size_t> places = places_of(*plan_);
  const auto leads_on = [&](const Delivery& delivery) {
    return std::ranges::any_of(delivery.gradients,
                               [&](std::size_t output) { return wanted[places[output]]; });
  };
  const auto& deliveries = plan_->deliveries;
  const auto last = std::ranges::find_if(deliveries.rbegin(), deliveries.rend(), leads_on).base();
  std::for_each(deliveries.begin(), last, [&](const Delivery& each) { frame_->check_versions(each); });
}

SavedValues Backward::values_for(const BackwardPart& part, bool own) const {
  auto names = plans_->read_for(part);
  if (const auto& again = plan_->recomputation.reads; !again.empty()) {
    auto more = *names;
    more.insert(again.begin(), again.end());
    names = std::make_shared<const std::unordered_set<std::string>>(std::move(more));
  }
  return frame_ != nullptr ? frame_->saved_values(*names, own) : rest_.values.only(*names);
}

Backward::Rest Backward::rest_for(const BackwardPart& left) const {
  Rest rest;
  if (left.empty()) return rest;
  rest.values = values_for(left, true);
  if (!rest.values.empty() && replay_.replay != nullptr) rest.inputs = forward_inputs();
  return rest;
}

void Backward::take_frame(Run& run, const BackwardPart& part, const Flags& wanted, FramePool* pool,
                          bool keep) {
  if (is_planned(part)) {
    if (keep) {
      run.copy = frame_->copy_for_backward();
    } else {
      run.other = std::move(frame_);
    }
  } else {
    run.other = pool->acquire();
    run.other->take_saved(values_for(part, false));
  }
  run.frame = run.copy != nullptr ? run.copy.get() : run.other.get();
  run.frame->bind_saved();
  run.places = places_of(run.frame->plan());
  Flags outputs;
  for (const std::size_t place : run.places) outputs.push_back(wanted[place]);
  run.frame->leave_out(left_out(run.frame->plan(), outputs));
}

std::vector<at::Tensor> Backward::forward_inputs() const {
  if (frame_ == nullptr) return rest_.inputs;
  std::vector<at::Tensor> inputs;
  for (const SlotId slot : plan_->forward.inputs) inputs.push_back((*frame_)[slot]);
  return inputs;
}

variable_list Backward::replay(const Repeat& repeat, const variable_list& cotangents, const Cut& cut) const {
  const auto& [inputs, state] = repeat;
  TORCH_CHECK_NOT_IMPLEMENTED(
      state.replay != nullptr && inputs.size() == plan_->forward.inputs.size(),
      "create_graph=True, is_grads_batched=True, gradients of results and gradients that are sparse or "
      "undefined need a session with a replay (Session::set_replay), and the first backward of a forward");
  state.inputs.check(inputs, *plans_->joint().graph);
  return (*state.replay)(inputs, state.random_states, cotangents, cut);
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
    if (run.delivered > 0)
      run.frame->check_versions(delivery);  // hooks of gradients that have left may write
    execute(plan.backward, *run.frame, run.done, delivery.end);
    run.done = delivery.end;
    std::vector<SlotId> slots;
    for (const std::size_t output : delivery.gradients) slots.push_back(plan.backward.outputs[output]);
    std::vector<at::Tensor> gradients = run.frame->delivered(slots);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (!run.frame->is_absent(plan.root_of(slots[i])))
        run.gradients[run.places[delivery.gradients[i]]] = std::move(gradients[i]);
      // The gradient's only owner is now its receiver, who may keep it without a copy.
      run.frame->release(slots[i]);
    }
  }
}

ForwardNode::ForwardNode(std::shared_ptr<Backward> backward, torch::autograd::edge_list next)
    : Node(std::move(next)), backward_(std::move(backward)) {}

}  // namespace rekindle::session
