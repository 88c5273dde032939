// OperatorMemory: gives operators of PyTorch, which allocate what they return and what they need meanwhile,
// the memory that the caller has for it.
//
// An example: at::convolution has no variant that writes into a given tensor. Of its allocations of as many
// bytes as its result has, the first is oneDNN's and the second the result's; so much a first call tells.
//
//   std::vector<int> turns;
//   for (...) {
//     OperatorMemory memory({&out}, turns);
//     at::Tensor result = at::convolution(...);  // lies in out from the second time on
//     turns = memory.turns_of({result});
//   }
//
// Its other large allocations lie in a workspace, which all such operators use one after the other. On the
// heap they would leave holes between small tensors that stay, and the next ones would not fit into these:
// ResNet-50 grew by 1.3 GiB where tensors had 0.85 (scripts/bench memory --model resnet50).
#pragma once

#include <ATen/core/TensorBody.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "device/workspace.h"

namespace rekindle::device {

// For the operators that this thread calls until the end of the scope; they may keep nothing of what they
// allocate but their results. Installs CpuAllocator, which asks for this thread's.
class OperatorMemory {
 public:
  static constexpr int kNone = -1;

  // `places`: dense CPU tensors that outlive this, one for each result. `turns`: which of the allocations of
  // its size is the result's, by turns_of() of an earlier call; empty, or kNone, where that is not known. An
  // operator that then does otherwise has results of its own.
  OperatorMemory(const std::vector<const at::Tensor*>& places, const std::vector<int>& turns);
  ~OperatorMemory();
  OperatorMemory(const OperatorMemory&) = delete;
  OperatorMemory& operator=(const OperatorMemory&) = delete;

  // From here on no memory is given: before somebody else computes in the scope.
  void close();
  // Returns, for each of the operator's results, which of the allocations of its size it lies in; kNone for
  // none.
  std::vector<int> turns_of(const std::vector<at::Tensor>& results) const;

 private:
  friend class CpuAllocator;
  struct Place {
    void* memory = nullptr;
    std::size_t bytes = 0;
    int turn = kNone;
  };
  struct Allocation {
    const void* memory = nullptr;
    std::size_t bytes = 0;
    int turn = 0;                    // among those of so many bytes
    std::size_t begin = 0, end = 0;  // in the workspace; empty for one that is elsewhere
    bool is_live = true;
  };

  // The innermost one of this thread; null where there is none.
  static OperatorMemory* current();
  // Returns whether this memory was given, which it is no more.
  static bool take_back(const void* memory);

  // Memory for the next allocation; null where there is none, and set_memory() tells what it got instead.
  void* take(std::size_t bytes);
  void* take_place(const Allocation& next);
  void* take_workspace(Allocation& next);
  void set_memory(const void* memory);
  void set_freed(const void* memory);
  bool is_of_a_place(std::size_t bytes) const;
  std::size_t room_for(std::size_t bytes) const;
  int turn_of(const at::Tensor& result) const;

  std::vector<Place> places_;
  std::vector<Allocation> allocations_;
  bool awaits_memory_ = false;            // of the last allocation
  std::unique_ptr<Workspace> workspace_;  // null before the first large allocation
  OperatorMemory* const outer_;
  bool is_open_ = true;
};

// Returns whether a tensor still uses this memory, which an OperatorMemory gave to it. Thread-safe.
bool is_given(const void* memory);

}  // namespace rekindle::device
