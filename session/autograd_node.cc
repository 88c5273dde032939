#include "session/autograd_node.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/graph_task.h>

namespace rekindle::session {

using torch::autograd::variable_list;

BackwardNode::BackwardNode(std::shared_ptr<PlanCache> plans, FramePool::Handle frame,
                           torch::autograd::edge_list next, ReplayState replay)
    : Node(std::move(next)), plans_(std::move(plans)), frame_(std::move(frame)), replay_(std::move(replay)) {}

variable_list BackwardNode::apply(variable_list&& cotangents) {
  TORCH_CHECK(frame_ != nullptr,
              "Trying to backward through the graph a second time (or directly access saved tensors after they have "
              "already been freed). Saved intermediate values of the graph are freed when you call .backward() or "
              "autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time.");
  frame_->check_versions();
  if (at::GradMode::is_enabled()) return run_replay(cotangents);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const Plan& plan = frame_->plan();
  std::vector<bool> present;
  for (const auto& cotangent : cotangents) present.push_back(cotangent.defined());
  const bool keep = torch::autograd::get_current_graph_task_keep_graph();
  if (present != plan.present) {
    FramePool::Handle other = plans_->find_for_cotangents(plan, present)->acquire();
    other->take_saved(*frame_);
    return run(*other, cotangents);
  }
  if (keep) return run(*frame_->copy_for_backward(), cotangents);
  return run(*frame_, cotangents);
}

variable_list BackwardNode::run_replay(const variable_list& cotangents) const {
  TORCH_CHECK_NOT_IMPLEMENTED(replay_.replay != nullptr, "create_graph=True needs a session with a replay (Session::set_replay)");
  std::vector<at::Tensor> inputs;
  for (const SlotId slot : frame_->plan().forward.inputs) inputs.push_back((*frame_)[slot]);
  return (*replay_.replay)(inputs, replay_.random_state, cotangents);
}

variable_list BackwardNode::run(Frame& frame, const variable_list& cotangents) {
  const Plan& plan = frame.plan();
  std::size_t next = 0;
  for (const auto& cotangent : cotangents) {
    if (!cotangent.defined()) continue;
    const SlotId slot = plan.backward.inputs[next++];
    const at::Tensor& meta = plan.slots[slot].meta;
    // The engine has checked sizes and dtype; only a stride can differ (an expanded cotangent, say).
    frame.bind(slot, cotangent.strides() == meta.strides() ? cotangent : cotangent.contiguous());
  }
  execute(plan.backward, frame);
  const auto& gradient_of = plan.joint->gradient_of;
  variable_list gradients(num_outputs());
  // A restricted graph has fewer gradients: the full graph's order tells which are missing.
  const auto& all = plans_->joint().gradient_of;
  for (std::size_t i = 0, j = 0; i < all.size() && j < gradient_of.size(); ++i) {
    if (all[i] != gradient_of[j]) continue;
    gradients[i] = frame[plan.backward.outputs[j]];
    ++j;
  }
  frame.unbind();
  return gradients;
}

}  // namespace rekindle::session
