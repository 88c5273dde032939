#include "device/operator_memory.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_set>
#include <utility>

#include "device/cpu_allocator.h"
#include "device/memory.h"
#include "src/base/mutex.h"

namespace rekindle::device {
namespace {

// Bytes; smaller allocations leave no holes that matter.
constexpr std::size_t kLarge = 64 << 10;
// So many are followed; an operator with more computes in small steps.
constexpr std::size_t kMaxAllocations = 64;

thread_local OperatorMemory* running = nullptr;

// Addresses that were given to tensors, which may free them on another thread.
class Given {
 public:
  bool add(void* memory) {
    const std::lock_guard lock(mutex_);
    if (!addresses_.insert(memory).second) return false;
    count_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  // Returns whether it was one.
  bool remove(const void* memory) {
    if (count_.load(std::memory_order_relaxed) == 0) return false;
    const std::lock_guard lock(mutex_);
    if (addresses_.erase(memory) == 0) return false;
    count_.fetch_sub(1, std::memory_order_relaxed);
    return true;
  }
  bool contains(const void* memory) const {
    const std::lock_guard lock(mutex_);
    return addresses_.contains(memory);
  }

 private:
  mutable Mutex mutex_;
  std::unordered_set<const void*> addresses_;
  std::atomic<std::size_t> count_ = 0;
};

Given& given() {
  static auto* const all = new Given;  // outlives tensors that are freed at the end of the process
  return *all;
}

}  // namespace

OperatorMemory::OperatorMemory(const std::vector<const at::Tensor*>& places, const std::vector<int>& turns)
    : outer_(running) {
  CpuAllocator::install();
  for (std::size_t i = 0; i < places.size(); ++i) {
    const at::Tensor& place = *places[i];
    TORCH_INTERNAL_ASSERT(place.is_cpu() && place.is_non_overlapping_and_dense());
    const int turn = i < turns.size() ? turns[i] : kNone;
    if (place.nbytes() > 0) places_.push_back({place.mutable_data_ptr(), place.nbytes(), turn});
  }
  running = this;
}

void OperatorMemory::close() {
  if (std::exchange(is_open_, false)) running = outer_;
}

OperatorMemory::~OperatorMemory() {
  close();
  if (workspace_ == nullptr) return;
  const bool is_kept = std::ranges::any_of(allocations_, [](const Allocation& one) {
    return one.is_live && one.end > one.begin && is_given(one.memory);
  });
  if (is_kept) {
    static_cast<void>(workspace_.release());  // the operator has a part of it, for good: a cache
  } else {
    Workspace::give_back(std::move(workspace_));
  }
}

bool OperatorMemory::is_of_a_place(std::size_t bytes) const {
  return std::ranges::any_of(places_, [&](const Place& place) { return place.bytes == bytes; });
}

// The first gap between what lives in the workspace.
std::size_t OperatorMemory::room_for(std::size_t bytes) const {
  std::size_t begin = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (const Allocation& one : allocations_) {
      if (!one.is_live || one.begin >= begin + bytes || one.end <= begin) continue;
      begin = one.end;
      moved = true;
    }
  }
  return begin;
}

void* OperatorMemory::take(std::size_t bytes) {
  awaits_memory_ = false;
  const bool is_small = bytes < kLarge && !is_of_a_place(bytes);
  if (bytes == 0 || is_small || allocations_.size() == kMaxAllocations) return nullptr;
  Allocation next{nullptr, bytes, 0};
  next.turn = static_cast<int>(std::ranges::count(allocations_, bytes, &Allocation::bytes));
  void* memory = take_place(next);
  if (memory == nullptr && bytes >= kLarge) memory = take_workspace(next);
  next.memory = memory;
  awaits_memory_ = memory == nullptr;
  allocations_.push_back(next);
  return memory;
}

void* OperatorMemory::take_place(const Allocation& next) {
  for (const Place& place : places_) {
    if (place.bytes == next.bytes && place.turn == next.turn && given().add(place.memory))
      return place.memory;
  }
  return nullptr;
}

void* OperatorMemory::take_workspace(Allocation& next) {
  if (workspace_ == nullptr) workspace_ = Workspace::take();
  const std::size_t alignment = alignment_of(at::kCPU);
  const std::size_t bytes = (next.bytes + alignment - 1) / alignment * alignment, begin = room_for(bytes);
  if (workspace_ == nullptr || !workspace_->reach(begin + bytes)) return nullptr;
  void* const memory = workspace_->begin() + begin;
  if (!given().add(memory)) return nullptr;
  next.begin = begin;
  next.end = begin + bytes;
  return memory;
}

void OperatorMemory::set_memory(const void* memory) {
  if (std::exchange(awaits_memory_, false)) allocations_.back().memory = memory;
}

void OperatorMemory::set_freed(const void* memory) {
  for (Allocation& one : allocations_) {
    if (one.memory == memory) one.is_live = false;
  }
}

int OperatorMemory::turn_of(const at::Tensor& result) const {
  if (!result.defined() || !result.has_storage()) return kNone;
  const auto found = std::ranges::find_if(allocations_, [&](const Allocation& one) {
    return one.is_live && one.memory == result.storage().data();
  });
  return found == allocations_.end() || !is_of_a_place(found->bytes) ? kNone : found->turn;
}

std::vector<int> OperatorMemory::turns_of(const std::vector<at::Tensor>& results) const {
  std::vector<int> turns;
  for (const at::Tensor& result : results) turns.push_back(turn_of(result));
  return turns;
}

OperatorMemory* OperatorMemory::current() { return running; }

bool OperatorMemory::take_back(const void* memory) { return given().remove(memory); }

bool is_given(const void* memory) { return given().contains(memory); }

}  // namespace rekindle::device
