#include "session/plan_cache.h"

#include <algorithm>
#include <chrono>

#include "src/autodiff/partition.h"
#include "src/autodiff/rematerialize.h"
#include "src/graph/op_info.h"

namespace rekindle::session {

PlanCache::PlanCache(std::shared_ptr<const autodiff::JointGraph> joint, SessionOptions options)
    : joint_(std::move(joint)), options_(std::move(options)), expected_(options_.expected_cotangents) {
  const std::vector<bool> all(joint_->cotangent_of.size(), true);
  if (expected_.size() != all.size()) expected_ = all;
  for (const graph::Value* value : autodiff::partition(*joint_).saved) keep_.push_back(value->name());
  for (const auto& node : joint_->graph->nodes()) {
    if (const graph::Value* value = autodiff::recomputed_value(*joint_->graph, *node))
      recomputed_.insert(value->name());
    for (std::size_t i = 0; i < node->inputs().size(); ++i) {
      if (node->input(i) != nullptr && graph::is_shape_only(*node, i))
        keep_layouts_.insert(node->input(i)->name());
    }
  }
  restricted_[all] = joint_;
}

std::shared_ptr<FramePool> PlanCache::find(std::span<const at::Tensor> inputs, bool record) {
  const std::lock_guard lock(mutex_);
  const at::Device device = inputs.empty() ? at::Device(at::kCPU) : inputs[0].device();
  for (const at::Tensor& tensor : inputs) {
    TORCH_CHECK(tensor.device() == device, "expected all tensors to be on the same device, but found ",
                device, " and ", tensor.device());
  }
  return find_locked(inputs, device, record);
}

std::shared_ptr<FramePool> PlanCache::find_for_cotangents(const Plan& used, std::vector<bool> present) {
  const std::lock_guard lock(mutex_);
  // The plan that guessed wrong would not be used again: its arena goes with its last frame.
  entries_.remove_if([&](const Entry& entry) {
    return entry.record && entry.present != present &&
           entry.pool->plan()->fits(used.input_metas.data(), used.input_metas.size(), used.device);
  });
  expected_ = std::move(present);
  return find_locked(used.input_metas, used.device, true);
}

std::shared_ptr<FramePool> PlanCache::find_locked(std::span<const at::Tensor> inputs, at::Device device,
                                                  bool record) {
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (entry->record != record || (record && entry->present != expected_)) continue;
    if (!entry->pool->plan()->fits(inputs.data(), inputs.size(), device)) continue;
    entries_.splice(entries_.begin(), entries_, entry);
    return entry->pool;
  }
  const auto start = std::chrono::steady_clock::now();
  PlanRequest request;
  request.joint = record ? restricted(expected_) : joint_;
  request.present = expected_;
  request.record = record;
  if (record) request.keep = keep_;
  if (record) request.recomputed = recomputed_;
  if (record) request.keep_layouts = keep_layouts_;
  request.inputs = inputs.data();
  request.input_count = inputs.size();
  request.device = device;
  request.output_layouts = &options_.output_layouts;
  request.gradient_layouts = &options_.gradient_layouts;
  request.gradient_order = &options_.gradient_order;
  request.defers = options_.defers;
  auto plan = make_plan(request);
  TORCH_CHECK(plan.ok(), plan.error().message);
  entries_.push_front({record, expected_, std::make_shared<FramePool>(std::move(plan).value())});
  if (entries_.size() > options_.max_plans) entries_.pop_back();
  stats_.plan_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ++stats_.plans_made;
  return entries_.front().pool;
}

std::shared_ptr<const autodiff::JointGraph> PlanCache::restricted(const std::vector<bool>& present) {
  auto& known = restricted_[present];
  if (known == nullptr) {
    auto made = autodiff::restrict_cotangents(*joint_, present);
    TORCH_CHECK(made.ok(), made.error().message);
    known = std::make_shared<const autodiff::JointGraph>(std::move(made).value());
  }
  return known;
}

SessionStats PlanCache::stats() const {
  const std::lock_guard lock(mutex_);
  SessionStats stats = stats_;
  stats.plans = entries_.size();
  if (entries_.empty()) return stats;
  const Plan& last = *entries_.front().pool->plan();
  stats.arena_bytes = last.arena_bytes;
  stats.saved_bytes = last.saved_bytes;
  stats.instructions = last.forward.instructions.size() + last.backward.instructions.size();
  stats.frames = entries_.front().pool->high_water();
  return stats;
}

std::string PlanCache::describe_last() const {
  const std::lock_guard lock(mutex_);
  return entries_.empty() ? std::string() : entries_.front().pool->plan()->describe();
}

}  // namespace rekindle::session
