#include "session/autograd_node.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/graph_task.h>

namespace rekindle::session {

using torch::autograd::variable_list;

BackwardNode::BackwardNode(std::shared_ptr<PlanCache> plans, FramePool::Handle frame,
                           torch::autograd::edge_list next)
    : Node(std::move(next)), plans_(std::move(plans)), frame_(std::move(frame)) {}

variable_list BackwardNode::apply(variable_list&& cotangents) {
  TORCH_CHECK(frame_ != nullptr,
              "Trying to backward through the graph a second time (or directly access saved tensors after they have "
              "already been freed). Saved intermediate values of the graph are freed when you call .backward() or "
              "autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time.");
  TORCH_CHECK_NOT_IMPLEMENTED(!at::GradMode::is_enabled(),
                              "create_graph=True is not supported through a rekindle.Module: its backward is not itself "
                              "differentiable. Run the model unwrapped (module.module) for double backward.");
  frame_->check_versions();
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
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
