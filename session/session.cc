#include "session/session.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <mutex>

#include "device/first_touch.h"
#include "device/random_state.h"
#include "session/autograd/result_node.h"
#include "session/autograd/saved_versions.h"
#include "session/host_function.h"
#include "session/lower/op.h"
#include "session/lower/torch_operator.h"
#include "session/padding/padding_elimination.h"
#include "session/plan/memory_account.h"
#include "session/plan/plan_cache.h"
#include "src/base/mutex.h"
#include "src/graph/op_info.h"
#include "src/graph/torch_node.h"

namespace rekindle::session {
namespace {

// The caller gets `output`, which will own the backward node and with it the frame; the frame keeps another
// handle on the same memory, or it would own itself. Both share one version counter, so that an in-place edit
// of the output is seen.
void keep_outputs(Frame& frame, const std::vector<at::Tensor>& outputs) {
  const Plan& plan = frame.plan();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const SlotId root = plan.root_of(plan.forward.outputs[i]);
    at::Tensor kept = frame[root].variable_data();
    torch::autograd::impl::set_version_counter(kept, torch::autograd::impl::version_counter(outputs[i]));
    frame.bind(root, std::move(kept));
  }
}

// A cache holds names of operators: what they are here and now is looked up before anything runs.
Status check_operator(const graph::Node& node) {
  if (!graph::is_torch(node)) return {};
  try {
    const TorchOperator checked(node, at::kCPU);
    return {};
  } catch (const c10::Error& error) {
    return unsupported(error.what_without_backtrace());
  }
}

// A replay runs the graph with all rows, which takes the first `count` inputs.
std::shared_ptr<const Replay> of_first(std::shared_ptr<const Replay> replay, std::size_t count) {
  if (replay == nullptr) return nullptr;
  return std::make_shared<const Replay>(
      [replay = std::move(replay), count](const auto& inputs, const auto& random_states,
                                          const auto& cotangents, const Cut& cut) {
        return (*replay)({inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(count)}, random_states,
                         cotangents, cut);
      });
}

}  // namespace

// What the autograd nodes of a forward are made with.
struct Session::Recorded {
  std::shared_ptr<const Replay> replay;
  std::vector<SavedConstant> constants;
  std::shared_ptr<device::FirstTouch> memory;  // may be null
};

struct Session::Impl {
  std::shared_ptr<PlanCache> plans;
  bool draws = false;  // the forward graph draws random numbers
  Mutex mutex;         // guards what is below; std::atomic has a lock inside that a fork can find taken
  std::shared_ptr<const Replay> replay;
  std::vector<SavedConstant> constants;
  std::shared_ptr<device::FirstTouch> first_touch;
  std::unique_ptr<PaddingElimination> padding;  // null: all rows are computed

  void hand_on_functions() {
    if (padding == nullptr) return;
    for (const auto& session : padding->sessions()) session->set_functions(*plans->functions());
  }

  // The session and the inputs with which a call runs that needs not all rows.
  std::optional<PaddingElimination::Choice> choose(std::span<const at::Tensor> inputs, bool record) {
    if (padding == nullptr || !record) return std::nullopt;
    return padding->choose(inputs, [this](Session& made) { made.set_functions(*plans->functions()); });
  }

  // What the next forward that records is made with.
  Recorded take_recorded() {
    const std::lock_guard lock(mutex);
    return {replay, constants, std::exchange(first_touch, nullptr)};
  }
};

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;

Result<std::shared_ptr<Session>> Session::create(autodiff::JointGraph joint, SessionOptions options) {
  for (const auto& node : joint.graph->nodes()) {
    if (find_lowering(node->domain(), node->op_type()) != nullptr) {
      REKINDLE_RETURN_IF_ERROR(check_operator(*node));
      continue;
    }
    return unsupported("the session has no lowering for op '" + node->domain() +
                       (node->domain().empty() ? "" : "::") + node->op_type() + "' (node '" +
                       node->output()->name() + "'" +
                       (node->source().empty() ? "" : " from " + node->source()) + ")");
  }
  auto impl = std::make_unique<Impl>();
  impl->draws =
      std::ranges::any_of(joint.graph->nodes(), [](const auto& node) { return graph::is_random(*node); });
  impl->plans =
      std::make_shared<PlanCache>(std::make_shared<const autodiff::JointGraph>(std::move(joint)), options);
  if (options.padding_elimination)
    impl->padding = std::make_unique<PaddingElimination>(impl->plans->joint(), std::move(options));
  return std::shared_ptr<Session>(new Session(std::move(impl)));
}

std::vector<at::Tensor> Session::forward(std::span<const at::Tensor> inputs, bool record) {
  record = record && !impl_->plans->joint().gradient_of.empty();
  Recorded recorded;
  if (record) recorded = impl_->take_recorded();
  const auto choice = impl_->choose(inputs, record);
  if (!choice) return run(inputs, record, recorded);
  recorded.replay = of_first(std::move(recorded.replay), inputs.size());
  return choice->session->run(choice->inputs, record, recorded);
}

std::vector<at::Tensor> Session::run(std::span<const at::Tensor> inputs, bool record,
                                     const Recorded& recorded) {
  const autodiff::JointGraph& joint = impl_->plans->joint();
  device::RandomStates random_states;
  const HostScope host(impl_->plans->functions());
  FramePool::Handle frame = impl_->plans->find(inputs, record)->acquire();
  const Plan& plan = frame->plan();
  if (recorded.memory != nullptr) {
    recorded.memory->stop();
    frame->keep(recorded.memory);
  }
  if (recorded.replay != nullptr && impl_->draws) random_states = device::random_states();
  std::vector<at::Tensor> outputs;
  {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(
        c10::autocast_dispatch_keyset);  // its casts are in the graph
    for (std::size_t i = 0; i < inputs.size(); ++i) frame->bind(plan.forward.inputs[i], inputs[i]);
    execute(plan.forward, *frame);
    outputs = frame->delivered(plan.forward.outputs);
    if (record) keep_outputs(*frame, outputs);
  }
  if (!record) return outputs;
  frame->record_saved();
  torch::autograd::variable_list differentiable;
  for (const std::size_t input : joint.gradient_of) differentiable.push_back(inputs[input]);
  std::vector<at::Tensor> results;
  for (const std::size_t output : joint.cotangent_of) results.push_back(outputs[output]);
  InputState state = recorded.replay != nullptr ? InputState(inputs) : InputState();
  SavedVersions versions(impl_->plans->saved_tensors(), inputs, outputs, recorded.constants);
  connect(results, impl_->plans, std::move(frame), std::move(versions),
          {recorded.replay, std::move(random_states), std::move(state)},
          torch::autograd::collect_next_edges(differentiable));
  return outputs;
}

void Session::set_functions(HostFunctions functions) {
  impl_->plans->set_functions(std::move(functions));
  impl_->hand_on_functions();
}

void Session::set_constants(const std::vector<at::Tensor>& constants) {
  std::vector<SavedConstant> now(constants.begin(), constants.end());
  const std::lock_guard lock(impl_->mutex);
  impl_->constants.swap(now);  // those before are let go without the lock
}

void Session::set_first_touch(std::shared_ptr<device::FirstTouch> memory) {
  const std::lock_guard lock(impl_->mutex);
  impl_->first_touch.swap(memory);  // what was there before is let go without the lock
}

void Session::set_replay(Replay replay) {
  auto now = replay ? std::make_shared<const Replay>(std::move(replay)) : nullptr;
  const std::lock_guard lock(impl_->mutex);
  impl_->replay.swap(now);  // the one before is let go without the lock
}

bool Session::may_replay() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->replay.use_count() > 1;
}

void Session::prepare(std::span<const at::Tensor> inputs, bool record) {
  const HostScope host(impl_->plans->functions());
  impl_->plans->find(inputs, record && !impl_->plans->joint().gradient_of.empty());
}

MemoryAccount Session::memory(std::span<const at::Tensor> inputs, bool record) {
  record = record && !impl_->plans->joint().gradient_of.empty();
  if (auto choice = impl_->choose(inputs, record)) return choice->session->memory(choice->inputs, record);
  const HostScope host(impl_->plans->functions());
  const auto pool = impl_->plans->find(inputs, record);
  MemoryAccount account = account_of(*pool->plan());
  account.subgraphs = impl_->plans->subgraphs_of(*pool->plan());
  return account;
}

std::optional<PaddingStats> Session::padding() const {
  return impl_->padding == nullptr ? std::nullopt : std::optional(impl_->padding->stats());
}

std::string Session::describe_plan() const { return impl_->plans->describe_last(); }

SessionStats Session::stats() const {
  SessionStats stats = impl_->plans->stats();
  if (impl_->padding == nullptr) return stats;
  for (const auto& session : impl_->padding->sessions()) {
    const SessionStats other = session->stats();
    stats.plans += other.plans;
    stats.plans_made += other.plans_made;
    stats.plan_seconds += other.plan_seconds;
    stats.arena_bytes = std::max(stats.arena_bytes, other.arena_bytes);
    stats.fused_kernels += other.fused_kernels;
    stats.replayed_runs += other.replayed_runs;
  }
  return stats;
}

const autodiff::JointGraph& Session::joint() const { return impl_->plans->joint(); }

}  // namespace rekindle::session
