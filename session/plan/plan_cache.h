// PlanCache: the plans of one session, most recently used first, and the set of cotangents to plan for.
//
// Thread-safe. A plan is made, and let go, while nothing is locked: both may run Python, of a function that
// the graph calls. Two threads that want the same plan at once both make it, and use the one that is done
// first.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "session/plan/functions_before.h"
#include "session/plan/saved_groups.h"
#include "session/run/frame_pool.h"
#include "session/session.h"
#include "src/base/mutex.h"

namespace rekindle::session {

class PlanCache {
 public:
  PlanCache(std::shared_ptr<const autodiff::JointGraph> joint, SessionOptions options);

  // The plan for these inputs and the cotangents expected now, made when there is none. Throws c10::Error.
  std::shared_ptr<FramePool> find(std::span<const at::Tensor> inputs, bool record);
  // The plan of `used`'s inputs for another part of the backward. `first`: no other backward of that forward
  // came before, so its cotangents are expected from now on. Needs no HostScope.
  std::shared_ptr<FramePool> find_for_part(const Plan& used, const BackwardPart& part, bool first);
  // Names of the forward values that such a backward may read.
  std::shared_ptr<const std::unordered_set<std::string>> read_for(const BackwardPart& part);
  // All gradients of these cotangents.
  BackwardPart whole(std::vector<bool> present) const;
  const SavedGroups& groups() const { return groups_; }
  const FunctionsBefore& functions_before() const { return functions_before_; }
  const std::vector<SavedTensor>& saved_tensors() const { return options_.saved_tensors; }
  const std::vector<std::vector<std::size_t>>& inner_results() const { return options_.inner_results; }

  const autodiff::JointGraph& joint() const { return *joint_; }
  // As of Session.
  void set_functions(HostFunctions functions);
  std::shared_ptr<const HostFunctions> functions() const;
  // Returns the kinds of values that the plan's backward could make again. It lowers the graph once more, so
  // that plans which nobody asks about cost nothing.
  std::vector<SubgraphKind> subgraphs_of(const Plan& plan) const;
  SessionStats stats() const;
  std::string describe_last() const;

 private:
  struct Wanted {
    std::span<const at::Tensor> inputs;
    at::Device device;
    bool record;
    BackwardPart part;
    std::shared_ptr<const autodiff::JointGraph> joint;  // restricted to `part`
    const std::vector<std::string>* dropped = nullptr;  // as of PlanRequest
  };
  struct Entry {
    bool record;
    BackwardPart part;
    std::shared_ptr<FramePool> pool;
    bool is_free;  // a forward may run on it: it dropped what the budget says, and nothing for another plan
    bool serves(const Wanted& wanted) const;
  };
  // Under the lock: the pool that is there, now the first, or null.
  std::shared_ptr<FramePool> known(const Wanted& wanted);
  // Under the lock: whether launches of a new plan may be recorded.
  bool may_record(const Wanted& wanted) const;
  // Under the lock: whether there are more plans than the options allow.
  bool is_full() const;
  std::shared_ptr<const autodiff::JointGraph> restricted(const BackwardPart& part);
  // Without it: a plan that is made, and kept unless another thread was faster.
  std::shared_ptr<FramePool> make(const Wanted& wanted);
  std::shared_ptr<const Plan> plan(const Wanted& wanted) const;
  PlanRequest request_of(const Wanted& wanted) const;
  // Under the lock: says what the options ask for that a plan does not keep, the first time.
  void warn_once(const Recomputation& made);

  const std::shared_ptr<const autodiff::JointGraph> joint_;
  const SessionOptions options_;
  const SavedGroups groups_;
  const FunctionsBefore functions_before_;
  KeptValues kept_;      // not changed any more
  mutable Mutex mutex_;  // guards what is below
  std::shared_ptr<const HostFunctions> functions_;
  std::vector<bool> expected_;  // cotangents the last forward's first backward was given
  bool warned_ = false;         // that a budget cannot be kept, or a memory plan
  bool several_ = false;        // a forward had more backwards than one
  std::map<BackwardPart, std::shared_ptr<const std::unordered_set<std::string>>> read_;
  std::map<BackwardPart, std::shared_ptr<const autodiff::JointGraph>> restricted_;
  std::list<Entry> entries_;
  SessionStats stats_;
};

}  // namespace rekindle::session
