// PlanCache: the plans of one session, most recently used first, and the set of cotangents to plan for.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "session/frame.h"
#include "session/session.h"

namespace rekindle::session {

class PlanCache {
 public:
  PlanCache(std::shared_ptr<const autodiff::JointGraph> joint, SessionOptions options);

  // The plan for these inputs and the cotangents expected now, made when there is none. Throws c10::Error.
  std::shared_ptr<FramePool> find(std::span<const at::Tensor> inputs, bool record);
  // The plan of `used`'s inputs for another set of cotangents; expected from now on.
  std::shared_ptr<FramePool> find_for_cotangents(const Plan& used, std::vector<bool> present);

  const autodiff::JointGraph& joint() const { return *joint_; }
  SessionStats stats() const;
  std::string describe_last() const;

 private:
  struct Entry {
    bool record;
    std::vector<bool> present;
    std::shared_ptr<FramePool> pool;
  };
  std::shared_ptr<FramePool> find_locked(std::span<const at::Tensor> inputs, at::Device device, bool record);
  std::shared_ptr<const autodiff::JointGraph> restricted(const std::vector<bool>& present);

  const std::shared_ptr<const autodiff::JointGraph> joint_;
  const SessionOptions options_;
  mutable std::mutex mutex_;
  std::vector<std::string> keep_;                 // values any backward may read
  std::unordered_set<std::string> recomputed_;    // those it may read where they are small
  std::unordered_set<std::string> keep_layouts_;  // and those of which it may read the layout
  std::vector<bool> expected_;                    // cotangents the last backward was given
  std::map<std::vector<bool>, std::shared_ptr<const autodiff::JointGraph>> restricted_;
  std::list<Entry> entries_;
  SessionStats stats_;
};

}  // namespace rekindle::session
