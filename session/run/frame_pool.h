// FramePool: the idle frames of one plan, which its next runs take again.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "session/run/frame.h"
#include "src/base/mutex.h"

namespace rekindle::session {

// The idle frames of one plan. Thread-safe.
class FramePool : public std::enable_shared_from_this<FramePool> {
 public:
  // `records`: of one of the frames, launches are recorded.
  explicit FramePool(std::shared_ptr<const Plan> plan, bool records = false)
      : plan_(std::move(plan)), records_(records), may_record_(records) {}
  // Returns a frame to its pool, unbound, when destroyed.
  struct Return {
    std::shared_ptr<FramePool> pool;
    void operator()(Frame* frame) const;
  };
  using Handle = std::unique_ptr<Frame, Return>;

  Handle acquire();
  const std::shared_ptr<const Plan>& plan() const { return plan_; }
  // The most frames that were in use at once.
  std::size_t high_water() const;
  bool records() const { return records_; }
  // Runs whose launches were replayed.
  std::size_t replays() const;

 private:
  std::unique_ptr<Frame> make();

  std::shared_ptr<const Plan> plan_;
  const bool records_;
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<Frame>> idle_;
  std::size_t in_use_ = 0, high_water_ = 0, replays_ = 0;
  bool may_record_;  // no frame does yet
};

}  // namespace rekindle::session
