#include "session/run/frame_pool.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace rekindle::session {

void FramePool::Return::operator()(Frame* frame) const {
  std::unique_ptr<Frame> owned(frame);
  owned->unbind();
  owned->give_back_arena();
  const std::lock_guard lock(pool->mutex_);
  if (const RecordedRuns* recorded = owned->recorded_runs()) pool->replays_ = recorded->replays();
  --pool->in_use_;
  pool->idle_.push_back(std::move(owned));
}

FramePool::Handle FramePool::acquire() {
  std::unique_ptr<Frame> frame;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      frame = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (frame == nullptr) frame = make();
  try {
    frame->take_arena();
  } catch (...) {  // for want of memory; this may be the frame that records
    frame->give_back_arena();
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(frame));
    throw;
  }
  {
    const std::lock_guard lock(mutex_);
    high_water_ = std::max(high_water_, ++in_use_);
  }
  return Handle(frame.release(), Return{shared_from_this()});
}

std::unique_ptr<Frame> FramePool::make() {
  auto frame = std::make_unique<Frame>(plan_);
  const std::lock_guard lock(mutex_);
  if (std::exchange(may_record_, false)) frame->record_launches();
  return frame;
}

std::size_t FramePool::replays() const {
  const std::lock_guard lock(mutex_);
  return replays_;
}

std::size_t FramePool::high_water() const {
  const std::lock_guard lock(mutex_);
  return high_water_;
}

}  // namespace rekindle::session
