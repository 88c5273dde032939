#include "session/plan/plan_cache.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <utility>

#include "session/host_function.h"
#include "session/plan/budget.h"
#include "session/run/fused_kernel.h"
#include "src/autodiff/join_loss_gradient.h"
#include "src/autodiff/partition.h"
#include "src/autodiff/rematerialize.h"
#include "src/base/log.h"
#include "src/graph/op_info.h"

namespace rekindle::session {

namespace {

std::string mebibytes(std::size_t bytes) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f MiB", static_cast<double>(bytes) / (1 << 20));
  return text.data();
}

void warn_of_budget(const Recomputation& made) {
  log_warning("a step's activations take " + mebibytes(made.activation_bytes) +
              ", the least that can be had, where memory_budget allows " + mebibytes(made.budget_bytes) +
              "; without a budget they take " + mebibytes(made.bytes_without));
}

std::size_t instructions_of(const Plan& plan) {
  return plan.forward.instructions.size() + plan.backward.instructions.size();
}

}  // namespace

PlanCache::PlanCache(std::shared_ptr<const autodiff::JointGraph> joint, SessionOptions options)
    : joint_(std::move(joint)),
      options_(std::move(options)),
      groups_(*joint_, options_.saved_groups),
      functions_before_(*joint_),
      expected_(options_.expected_cotangents) {
  const std::vector<bool> all(joint_->cotangent_of.size(), true);
  if (expected_.size() != all.size()) expected_ = all;
  for (const graph::Value* value : autodiff::partition(*joint_).saved) kept_.read.insert(value->name());
  for (const auto& node : joint_->graph->nodes()) {
    if (const graph::Value* value = autodiff::recomputed_value(*joint_->graph, *node))
      kept_.recomputed.insert(value->name());
    for (std::size_t i = 0; i < node->inputs().size(); ++i) {
      if (node->input(i) != nullptr && graph::is_shape_only(*node, i))
        kept_.layouts.insert(node->input(i)->name());
    }
  }
  restricted_[whole(all)] = joint_;
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
    wanted.part = whole(expected_);
    if (auto pool = known(wanted)) return pool;
    if (record) wanted.joint = restricted(wanted.part);
  }
  return make(wanted);
}

BackwardPart PlanCache::whole(std::vector<bool> present) const {
  return {std::move(present), std::vector<bool>(joint_->gradient_of.size(), true)};
}

std::shared_ptr<FramePool> PlanCache::find_for_part(const Plan& used, const BackwardPart& part, bool first) {
  std::list<Entry> gone;  // destroyed after the lock is released
  Wanted wanted{used.input_metas, used.device, true, part, nullptr};
  {
    const std::lock_guard lock(mutex_);
    several_ = several_ || !first;
    if (first) expected_ = part.present;
    // The plan that guessed wrong would not be used again: its arena goes with its last frame.
    for (auto entry = entries_.begin(); !several_ && entry != entries_.end();) {
      const auto each = entry++;
      if (each->record && each->part != part && each->pool->plan()->fits(wanted.inputs, wanted.device)) {
        gone.splice(gone.end(), entries_, each);
      }
    }
    wanted.dropped = &used.recomputation.dropped;
    if (auto pool = known(wanted)) return pool;
    wanted.joint = restricted(part);
  }
  const HostScope host(functions());
  return make(wanted);
}

std::shared_ptr<const std::unordered_set<std::string>> PlanCache::read_for(const BackwardPart& part) {
  const std::lock_guard lock(mutex_);
  auto& known = read_[part];
  if (known != nullptr) return known;
  const auto joint = restricted(part);
  const autodiff::Partition split = autodiff::partition(*joint);
  std::unordered_set<std::string> names;
  for (const graph::Value* value : split.saved) names.insert(value->name());
  for (const graph::Node* node : split.backward) {
    if (const graph::Value* value = autodiff::recomputed_value(*joint->graph, *node))
      names.insert(value->name());
    for (std::size_t i = 0; i < node->inputs().size(); ++i) {
      if (node->input(i) != nullptr && graph::is_shape_only(*node, i) &&
          kept_.layouts.contains(node->input(i)->name()))
        names.insert(node->input(i)->name());
    }
  }
  return known = std::make_shared<const std::unordered_set<std::string>>(std::move(names));
}

// A forward takes plans that the budget has decided on. A backward takes those that find what its forward has
// left.
bool PlanCache::Entry::serves(const Wanted& wanted) const {
  if (!wanted.record) return true;
  if (wanted.dropped == nullptr) return is_free;
  return pool->plan()->recomputation.dropped == *wanted.dropped;
}

std::shared_ptr<FramePool> PlanCache::known(const Wanted& wanted) {
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (entry->record != wanted.record || (wanted.record && entry->part != wanted.part)) continue;
    if (!entry->serves(wanted)) continue;
    if (!entry->pool->plan()->fits(wanted.inputs, wanted.device)) continue;
    entries_.splice(entries_.begin(), entries_, entry);
    return entry->pool;
  }
  return nullptr;
}

std::shared_ptr<FramePool> PlanCache::make(const Wanted& wanted) {
  const auto start = std::chrono::steady_clock::now();
  const std::shared_ptr<const Plan> made = [&] {
    // A mode around the call sees operators, and may change what they return: a plan is there for later
    // calls.
    const c10::impl::ExcludeDispatchKeyGuard no_modes(
        c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot}));
    return plan(wanted);
  }();
  std::list<Entry> gone;
  const std::lock_guard lock(mutex_);
  auto pool = std::make_shared<FramePool>(made, may_record(wanted));
  warn_once(pool->plan()->recomputation);
  if (auto faster = known(wanted)) {
    gone.push_back({wanted.record, {}, std::exchange(pool, std::move(faster)), false});
    return pool;
  }
  const bool is_asked = options_.memory_budget || options_.memory_plan;
  const bool is_free = wanted.dropped == nullptr || (wanted.dropped->empty() && !is_asked);
  entries_.push_front({wanted.record, wanted.part, pool, is_free});
  while (is_full()) gone.splice(gone.end(), entries_, std::prev(entries_.end()));
  stats_.plan_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ++stats_.plans_made;
  return pool;
}

void PlanCache::warn_once(const Recomputation& made) {
  const bool is_over = made.budget_bytes > 0 && made.activation_bytes > made.budget_bytes;
  if ((!is_over && made.unmet.empty()) || std::exchange(warned_, true)) return;
  if (is_over) return warn_of_budget(made);
  log_warning("the memory plan " + options_.memory_plan->file +
              " asks to compute again what the graph does not have: " + made.unmet);
}

bool PlanCache::may_record(const Wanted& wanted) const {
  if (!options_.record_launches || wanted.device.is_cpu()) return false;
  const auto records = [](const Entry& entry) { return entry.pool->records(); };
  return std::ranges::count_if(entries_, records) < static_cast<std::ptrdiff_t>(kMostRecordedPlans);
}

bool PlanCache::is_full() const {
  constexpr std::size_t kMostPlans = 1024;  // they are looked through one after the other
  if (entries_.size() <= options_.max_plans) return false;
  std::size_t instructions = 0;
  for (const Entry& entry : entries_) instructions += instructions_of(*entry.pool->plan());
  return entries_.size() > kMostPlans || instructions > options_.max_instructions;
}

std::shared_ptr<const Plan> PlanCache::plan(const Wanted& wanted) const {
  auto made = make_plan(request_of(wanted));
  TORCH_CHECK(made.ok(), made.error().message);
  return std::move(made).value();
}

std::vector<SubgraphKind> PlanCache::subgraphs_of(const Plan& plan) const {
  if (plan.backward.instructions.empty()) return {};
  return recomputable_kinds(request_of({plan.input_metas, plan.device, true, {plan.present, {}}, plan.joint}),
                            plan.recomputation);
}

PlanRequest PlanCache::request_of(const Wanted& wanted) const {
  PlanRequest request;
  request.joint = wanted.joint;
  request.present = wanted.part.present;
  request.record = wanted.record;
  if (wanted.record) request.kept = &kept_;
  request.fuse = options_.fuse;
  request.inputs = wanted.inputs;
  request.device = wanted.device;
  request.output_layouts = &options_.output_layouts;
  request.gradient_layouts = &options_.gradient_layouts;
  request.gradient_order = &options_.gradient_order;
  request.saved_as_given = &options_.saved_as_given;
  request.saved_both_ways = &options_.saved_both_ways;
  request.budget = options_.memory_budget;
  if (options_.memory_plan) request.memory_plan = &*options_.memory_plan;
  request.dropped = wanted.dropped;
  request.defers = options_.defers;
  return request;
}

std::shared_ptr<const autodiff::JointGraph> PlanCache::restricted(const BackwardPart& part) {
  auto& known = restricted_[part];
  if (known == nullptr) {
    auto made = autodiff::restrict_cotangents(*joint_, part.present);
    TORCH_CHECK(made.ok(), made.error().message);
    std::unordered_set<std::size_t> inputs;
    for (std::size_t i = 0; i < part.gradients.size(); ++i) {
      if (part.gradients[i]) inputs.insert(joint_->gradient_of[i]);
    }
    if (inputs.size() < joint_->gradient_of.size()) autodiff::restrict_gradients(*made, inputs);
    autodiff::join_loss_gradient(*made);
    known = std::make_shared<const autodiff::JointGraph>(std::move(made).value());
  }
  return known;
}

SessionStats PlanCache::stats() const {
  const std::lock_guard lock(mutex_);
  SessionStats stats = stats_;
  stats.plans = entries_.size();
  for (const Entry& entry : entries_) stats.replayed_runs += entry.pool->replays();
  if (entries_.empty()) return stats;
  const Plan& last = *entries_.front().pool->plan();
  stats.arena_bytes = last.arena_bytes;
  stats.saved_bytes = last.saved_bytes;
  stats.recomputed = last.recomputation.instructions;
  for (const Program* program : {&last.forward, &last.backward}) {
    for (const Instruction& each : program->instructions)
      stats.fused_kernels += each.fused != nullptr && each.fused->is_in_use() ? 1 : 0;
  }
  stats.instructions = instructions_of(last);
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
