#include "session/plan_cache.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "session/host_function.h"
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
  const at::Device device = inputs.empty() ? at::Device(at::kCPU) : inputs[0].device();
  for (const at::Tensor& tensor : inputs) {
    TORCH_CHECK(tensor.device() == device, "expected all tensors to be on the same device, but found ",
                device, " and ", tensor.device());
  }
  Wanted wanted{inputs, device, record, {}, joint_};
  {
    const std::lock_guard lock(mutex_);
    wanted.present = expected_;
    if (auto pool = known(wanted)) return pool;
    if (record) wanted.joint = restricted(expected_);
  }
  return make(wanted);
}

std::shared_ptr<FramePool> PlanCache::find_for_cotangents(const Plan& used, std::vector<bool> present) {
  std::list<Entry> gone;  // destroyed after the lock is released
  Wanted wanted{used.input_metas, used.device, true, std::move(present), nullptr};
  {
    const std::lock_guard lock(mutex_);
    // The plan that guessed wrong would not be used again: its arena goes with its last frame.
    for (auto entry = entries_.begin(); entry != entries_.end();) {
      const auto each = entry++;
      if (each->record && each->present != wanted.present &&
          each->pool->plan()->fits(wanted.inputs.data(), wanted.inputs.size(), wanted.device)) {
        gone.splice(gone.end(), entries_, each);
      }
    }
    expected_ = wanted.present;
    if (auto pool = known(wanted)) return pool;
    wanted.joint = restricted(wanted.present);
  }
  const HostScope host(functions());
  return make(wanted);
}

std::shared_ptr<FramePool> PlanCache::known(const Wanted& wanted) {
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (entry->record != wanted.record || (wanted.record && entry->present != wanted.present)) continue;
    if (!entry->pool->plan()->fits(wanted.inputs.data(), wanted.inputs.size(), wanted.device)) continue;
    entries_.splice(entries_.begin(), entries_, entry);
    return entry->pool;
  }
  return nullptr;
}

std::shared_ptr<FramePool> PlanCache::make(const Wanted& wanted) {
  const auto start = std::chrono::steady_clock::now();
  auto pool = std::make_shared<FramePool>(plan(wanted));
  std::list<Entry> gone;
  const std::lock_guard lock(mutex_);
  if (auto faster = known(wanted)) {
    gone.push_back({wanted.record, {}, std::exchange(pool, std::move(faster))});
    return pool;
  }
  entries_.push_front({wanted.record, wanted.present, pool});
  if (entries_.size() > options_.max_plans) gone.splice(gone.end(), entries_, std::prev(entries_.end()));
  stats_.plan_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ++stats_.plans_made;
  return pool;
}

std::shared_ptr<const Plan> PlanCache::plan(const Wanted& wanted) const {
  PlanRequest request;
  request.joint = wanted.joint;
  request.present = wanted.present;
  request.record = wanted.record;
  if (wanted.record) request.keep = keep_;
  if (wanted.record) request.recomputed = recomputed_;
  if (wanted.record) request.keep_layouts = keep_layouts_;
  request.inputs = wanted.inputs.data();
  request.input_count = wanted.inputs.size();
  request.device = wanted.device;
  request.output_layouts = &options_.output_layouts;
  request.gradient_layouts = &options_.gradient_layouts;
  request.gradient_order = &options_.gradient_order;
  request.defers = options_.defers;
  auto made = make_plan(request);
  TORCH_CHECK(made.ok(), made.error().message);
  return std::move(made).value();
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
  std::shared_ptr<FramePool> last;
  {
    const std::lock_guard lock(mutex_);
    if (!entries_.empty()) last = entries_.front().pool;
  }
  return last == nullptr ? std::string() : last->plan()->describe();
}

void PlanCache::set_functions(HostFunctions functions) {
  auto now = std::make_shared<const HostFunctions>(std::move(functions));
  const std::lock_guard lock(mutex_);
  functions_.swap(now);  // those before are let go without the lock
}

std::shared_ptr<const HostFunctions> PlanCache::functions() const {
  const std::lock_guard lock(mutex_);
  return functions_;
}

}  // namespace rekindle::session
